package neuron

import (
	"context"
	"fmt"
	"time"

	"soma/ident"
)

// Feed names one of a neuron's two journals.
type Feed uint8

// The feeds.
const (
	In  Feed = 0
	Out Feed = 1
)

// NodeKept is how long what a store knows of a node stays that holds no place and gives no sign of life.
const NodeKept = 7 * 24 * time.Hour

// Store is the seam that every engine of storage fills and that the suite store/storetest checks. All methods but Close
// are safe for concurrent use; Commit is called by one goroutine.
type Store interface {
	// Claim begins a new life of node under an epoch greater than every earlier one, and fences its earlier lives. On an
	// engine for one node the fence holds all places, whoever held them; on one for several it holds none yet.
	Claim(ctx context.Context, node string) (Fence, error)
	// Commit applies the group in order in one durable transaction and gives the numbers of Numbered ops, on an engine for
	// one node TurnRow.Pos too. Shared ops run before all else. The place of every record must be held under the epoch of
	// fence.Places.
	// On any error nothing of the group is applied. Errors: *RecordError (one record cannot be applied: guard, duplicate),
	// ErrFenced, ErrOutcomeUnknown (may have been applied after all), ErrStoreFailed (ends the daemon). ctx is heeded before
	// the transaction begins only. A duplicate is noticed among turn rows, which go before the dedupe window ends: Settled,
	// asked first, sees the whole window.
	Commit(ctx context.Context, fence Fence, group []*Record) error
	// Neuron reads what an activation needs. A neuron that has no row yet comes back with Key 0.
	Neuron(ctx context.Context, id ID) (NeuronRow, error)
	// ReserveKeys returns neuron keys, first to last, that no other life of a node gets and no row has: on an engine for one
	// node all that are left.
	ReserveKeys(ctx context.Context) (first, last int64, err error)
	// Settled reports whether the neuron of key has settled the delivery within the dedupe window.
	Settled(ctx context.Context, key int64, id ident.ID) (bool, error)
	// Entries reads up to limit entries of a feed after sequence after, oldest first.
	Entries(ctx context.Context, id ID, feed Feed, after uint64, limit int) (Page, error)
	// Outbox reads up to limit rows of the places in order of id after the given id.
	Outbox(ctx context.Context, in PlaceSet, after ident.ID, limit int) ([]OutboxRow, error)
	// OutboxRows reads the rows of the given ids that exist, of whatever place, in any order.
	OutboxRows(ctx context.Context, ids []ident.ID) ([]OutboxRow, error)
	// Executions reads up to limit started executions of the places in order of id after the given id.
	Executions(ctx context.Context, in PlaceSet, after ident.ID, limit int) ([]Execution, error)
	// DeadLetters reads up to limit of them, of all places, in order of id after the given id.
	DeadLetters(ctx context.Context, after ident.ID, limit int) ([]DeadLetter, error)
	// Query runs a read over committed rows and calls row for each with a scan function as of database/sql.
	Query(ctx context.Context, sql string, args []any, row func(scan func(dest ...any) error) error) error
	// Close waits for running calls and closes the database.
	Close() error
}

// Window is a Store that lists at once what Settled looks up one by one.
type Window interface {
	// SettledIDs calls each for the ids that the neuron of key has settled within the dedupe window, oldest first, as of one
	// moment; ids from before the window may come first.
	SettledIDs(ctx context.Context, key int64, each func(ident.ID)) error
}

// SelectContent reads the bytes of a content row by its id (16 bytes), through Query.
const SelectContent = "select bytes from content where id = ?"

// Queries of the outbox that a move of places needs, through Query.
const (
	// SelectOutboxIDs reads ids (16 bytes) and places in order of id: after an id, at most so many.
	SelectOutboxIDs = "select id, place from outbox where id > ? order by id limit ?"
	// SelectOutboxTo reads the ids of all rows to one target (its text), as of one moment.
	SelectOutboxTo = "select id from outbox where target = ? order by id"
)

// NeuronRow is what an activation starts from: the checkpoint, moved on by the turns after it.
type NeuronRow struct {
	Key   int64
	Place Place
	Checkpoint
	// SinceCheckpoint counts the turns after the checkpoint.
	SinceCheckpoint int
}

// Page is a part of a journal. Where the reader was behind the compaction mark, Reset is set and Entries start at First.
type Page struct {
	Reset       bool
	First, Last uint64 // first kept and last sequence of the feed; First is Last+1 for an empty feed
	Tallies     map[string]uint64
	Entries     []Entry
	// Seqs are the sequences of Entries, one each.
	Seqs []uint64
}

// RecordError says which record of a group cannot be applied, and why.
type RecordError struct {
	Index int
	Err   error
}

func (e *RecordError) Error() string { return fmt.Sprintf("record %d: %v", e.Index, e.Err) }

// Unwrap returns the reason.
func (e *RecordError) Unwrap() error { return e.Err }
