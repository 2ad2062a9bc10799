package wire

import (
	"encoding/json"
	"time"

	"soma/message"
)

// DeadLetter is a delivery that ended without being handled. It stays until somebody re-drives or discards it.
type DeadLetter struct {
	ID          string          `json:"id"`
	Alias       string          `json:"alias"`
	Caller      string          `json:"caller,omitempty"` // the neuron that sent it; none: it came from outside
	Target      string          `json:"target"`
	Correlation string          `json:"correlation"`
	Causation   string          `json:"causation,omitempty"`
	Code        string          `json:"code"`
	Error       string          `json:"error,omitempty"`
	Attempts    int             `json:"attempts"`
	SentAt      time.Time       `json:"sent_at"`
	EndedAt     time.Time       `json:"ended_at"`
	Payload     json.RawMessage `json:"payload,omitempty"` // absent where it is protected, or kept apart because of its size
}

// Redriven answers PUT /v1/deadletters/{letter}/redrive: As is the id under which the delivery was sent again.
type Redriven struct {
	ID string `json:"id"`
	As string `json:"as"`
}

// Discarded answers DELETE /v1/deadletters/{letter}.
type Discarded struct {
	ID string `json:"id"`
}

// Owner is the first part of the ids of a home's neurons.
const Owner = "me"

// The feeds of a neuron.
const (
	FeedIn  = "in"  // what it was given
	FeedOut = "out" // what it sent, and what became of that where it was not handled
)

// JournalEntryAdded is the kind of a journal stream's events, with a JournalEntry as data; its Reset has a JournalReset.
const JournalEntryAdded = "entry"

// Journal is a page of one feed of a neuron. Where entries after the asked sequence are not kept any more, Reset is set and
// Entries begin at First.
type Journal struct {
	Neuron  string            `json:"neuron"`
	Feed    string            `json:"feed"`
	Reset   bool              `json:"reset,omitempty"`
	First   uint64            `json:"first"`   // sequence of the first entry that is kept, Last+1 where there is none
	Last    uint64            `json:"last"`    // sequence of the newest entry
	Tallies map[string]uint64 `json:"tallies"` // entries per alias since the neuron exists
	Entries []JournalEntry    `json:"entries"`
}

// JournalReset is the data of a journal stream's reset: what lies before First was counted and is not kept any more. The
// stream goes on with First.
type JournalReset struct {
	Generation string            `json:"generation"`
	First      uint64            `json:"first"`
	Last       uint64            `json:"last"`
	Tallies    map[string]uint64 `json:"tallies"`
}

// JournalItem is what a follower of a journal is handed. Exactly one field is set.
type JournalItem struct {
	Entry *JournalEntry
	Reset *JournalReset
}

// JournalEntry is one fact of a feed: a delivery, and how it was settled if it was refused.
type JournalEntry struct {
	Seq         uint64          `json:"seq"`
	ID          string          `json:"id"`
	Alias       string          `json:"alias"`
	Caller      string          `json:"caller,omitempty"`
	Target      string          `json:"target,omitempty"`    // none: an emission
	Via         string          `json:"via,omitempty"`       // the connection that carries it
	Receivers   *int            `json:"receivers,omitempty"` // of an emission
	Request     string          `json:"request,omitempty"`   // the call that it carries out
	Correlation string          `json:"correlation,omitempty"`
	Causation   string          `json:"causation,omitempty"`
	Depth       int             `json:"depth,omitempty"` // hops between neurons
	At          time.Time       `json:"at"`
	Signal      bool            `json:"signal,omitempty"` // on the lane that overtakes mail
	Attempts    int             `json:"attempts,omitempty"`
	HandledAt   *time.Time      `json:"handled_at,omitempty"` // with Attempts
	Refused     string          `json:"refused,omitempty"`    // the code of an incoming one that was settled without being handled
	Ended       *JournalEnded   `json:"ended,omitempty"`      // of a fact in the outgoing feed
	Content     string          `json:"content,omitempty"`    // where a large payload is kept
	Protected   bool            `json:"protected,omitempty"`  // the payload is not shown
	Payload     json.RawMessage `json:"payload,omitempty"`
}

// JournalEnded is the fact that a delivery which the neuron has sent was refused or given up.
type JournalEnded struct {
	ID     string `json:"id"`
	Target string `json:"target"`
	Code   string `json:"code"`
}

// Bounds of a trace.
const (
	MaxTraceNodes   = 2000
	MaxTraceNeurons = 64
)

// Trace is one correlation: everything that the first of its deliveries has led to, as far as it is kept.
type Trace struct {
	Asked       string    `json:"asked"`
	Is          string    `json:"is"` // what the asked id names: delivery, execution, input, cell, session, process
	Correlation string    `json:"correlation"`
	StartedAt   time.Time `json:"started_at"`
	EndedAt     time.Time `json:"ended_at"` // of what is known
	// Nodes are the tree, depth first: a node's children follow it in order of time.
	Nodes []TraceNode `json:"nodes"`
	// Gaps tell which journals have lost entries that may have belonged to it.
	Gaps []TraceGap `json:"gaps"`
	// Cut says why not all of it was looked for, where that is so.
	Cut    string `json:"cut,omitempty"`
	Tokens int64  `json:"tokens"`
	Cost   *int64 `json:"cost_nano"` // null when any part is unknown
	// Estimated says that Cost comes from counts that no provider has reported.
	Estimated bool `json:"cost_estimated,omitempty"`
}

// Kinds of trace nodes.
const (
	NodeDelivery  = "delivery"
	NodeEmission  = "emission"  // what was sent to all whom it concerned; its deliveries are its children
	NodeFact      = "fact"      // what a neuron noted of a call
	NodeExecution = "execution" // slow work of a neuron, one attempt
	NodeInference = "inference" // an execution that asks a provider
	NodeInput     = "input"
	NodeCall      = "call" // a tool call that became no cell
	NodeCell      = "cell"
	NodeKernel    = "kernel" // a python kernel that began or ended meanwhile
	NodeDaemon    = "daemon" // its last start, if that lies within the trace
	NodeGap       = "gap"    // what led to its children is not kept any more
)

// TraceNode is one thing that happened. Which fields are set depends on its kind.
type TraceNode struct {
	Kind   string     `json:"kind"`
	ID     string     `json:"id"`
	Parent string     `json:"parent,omitempty"`
	Depth  int        `json:"depth"`            // of the tree
	Asked  bool       `json:"asked,omitempty"`  // it is what the trace was asked for by
	Neuron string     `json:"neuron,omitempty"` // whose turn it was, or will be
	Caller string     `json:"caller,omitempty"`
	What   string     `json:"what"` // alias, model, tool, first line of code or text
	At     time.Time  `json:"at"`
	End    *time.Time `json:"ended_at,omitempty"`
	// State of a delivery: handled, refused, waiting, retrying, alarm, unsettled (nothing tells of its end); of other things
	// as their own rows say.
	State    string         `json:"state"`
	Code     string         `json:"code,omitempty"` // of a refusal
	Error    string         `json:"error,omitempty"`
	Dead     bool           `json:"dead,omitempty"` // a dead letter: it can be re-driven
	Attempt  int            `json:"attempt,omitempty"`
	Attempts int            `json:"attempts,omitempty"` // that a delivery took, or has taken so far
	Due      *time.Time     `json:"due,omitempty"`
	Via      string         `json:"via,omitempty"`     // the connection that carries a delivery
	Request  string         `json:"request,omitempty"` // the call that a delivery carries out, or that a fact is about
	Step     int64          `json:"step,omitempty"`
	Usage    *message.Usage `json:"usage,omitempty"`
	Cost     *int64         `json:"cost_nano,omitempty"`
	Note     string         `json:"note,omitempty"`
	// See is a delivery of another correlation where this went on: an input that joined an agent turn which was under way.
	See string `json:"see,omitempty"`
}

// TraceGap says that the first entries of a journal are not kept any more, and that some of them may be missing here.
type TraceGap struct {
	Neuron string `json:"neuron"`
	Feed   string `json:"feed"`
	First  uint64 `json:"first"` // the first sequence that is kept
}
