package neuron

import (
	"time"

	"soma/ident"
)

// Record is all that one turn (or one acceptance without a turn) writes. It is committed whole or not at all.
type Record struct {
	Place  Place
	Neuron ID
	// Key is the number of the neuron's row, given by the engine. New means that the row is inserted by this record.
	Key int64
	New bool
	// Turn is nil for a record that only accepts or settles deliveries.
	Turn *TurnRow
	// Checkpoint is set on every Limits.CheckpointTurn-th turn; which one that is differs between neurons.
	Checkpoint *Checkpoint
	Contents   []Content
	// Outbox rows are inserted; Retried ones get their new attempt count and due time; Delivered ones are deleted.
	Outbox    []OutboxRow
	Retried   []OutboxRow
	Delivered []ident.ID
	Dead      []DeadLetter
	// Undead dead letters are deleted (re-driven or discarded); the record fails with ErrNoDeadLetter where one is not there.
	Undead []ident.ID
	// Started executions are inserted (an existing row of the same ID is replaced by the new attempt); Ended ones deleted.
	Started []Execution
	Ended   []ident.ID
	// Cancelled executions are running ones whose context ends after the commit; it writes nothing.
	Cancelled []ident.ID
	Ops       []Op
}

// TurnRow is one row of the turn table; both journals are views of it. A row without a delivery is a step: what a turn that
// still runs commits ahead of its own row, under the same Seq. It adds to the outgoing feed only, and has neither state nor
// checkpoint; a turn that is retracted leaves its steps to the sequence of the next one.
type TurnRow struct {
	Pos        int64 // given by the store's committer in commit order
	Seq        uint64
	DeliveryID ident.ID // zero for a step
	// Incoming is the accepted delivery as JSON (Entry), empty for a step; Outgoing a JSON array of Entry, empty when nothing was sent.
	Incoming []byte
	OutFirst uint64 // sequence of the first outgoing entry
	Outgoing []byte
	// StateAlias and State hold the state after the turn; both are zero when it did not change.
	StateAlias string
	State      []byte
}

// IsStep reports whether the row is a step.
func (t *TurnRow) IsStep() bool { return t.DeliveryID.IsZero() }

// Entry is one fact in a journal: a delivery, and how it was settled if it was refused.
type Entry struct {
	Delivery
	Settled Code `json:"settled,omitempty"`
	// Attempts and Handled are set for an accepted delivery that was not settled at its first attempt: how many it took, and the
	// time of the last.
	Attempts int       `json:"attempts,omitempty"`
	Handled  time.Time `json:"handled,omitzero"`
	// Facts of the runtime's own (a delivery that ended) carry the target and code of that delivery.
	Ended *EndedDelivery `json:"ended,omitempty"`
	// Emitted is set for an emission; its deliveries are in the outbox only.
	Emitted *Emission `json:"emitted,omitempty"`
}

// EndedDelivery is the fact that a sent delivery was refused or given up.
type EndedDelivery struct {
	ID     ident.ID `json:"id"`
	Target ID       `json:"target"`
	Code   Code     `json:"code"`
}

// Checkpoint is the content of a neuron's row.
type Checkpoint struct {
	InSeq, OutSeq uint64
	// Tallies count entries per feed and alias since the neuron exists; compaction never lowers them.
	Tallies    Tallies
	StateAlias string
	State      []byte
}

// Tallies count journal entries per alias.
type Tallies struct {
	In  map[string]uint64 `json:"in,omitempty"`
	Out map[string]uint64 `json:"out,omitempty"`
}

// Content is a large value stored once.
type Content struct {
	ID    ident.ID
	Bytes []byte
	// Payload says that it is what a delivery brings: it goes some time after the last journal, outbox row, dead letter and call
	// that names it. Any other stays until whoever keeps it deletes it.
	Payload bool
}

// OutboxRow is a delivery that is kept until it is settled, an alarm when Due lies ahead.
type OutboxRow struct {
	Delivery
	Place    Place // of the target
	Due      time.Time
	FirstTry time.Time // zero before the first
	Attempts int
	Crashes  int
	// Tried is the time that has really been tried (N-18: time with the daemon down does not count).
	Tried time.Duration
	Alarm bool
}

// DeadLetter is a delivery that ended without being handled, kept to list, re-drive or discard.
type DeadLetter struct {
	Delivery
	Code     Code
	Error    string
	Attempts int
	EndedAt  time.Time
}
