package flow

import (
	"context"

	"soma/ident"
	"soma/session"
)

// DefaultConcurrency is the number of nodes that run at once where nothing else is asked for.
const DefaultConcurrency = 5

// Options say how a flow is run. The zero value is usable.
type Options struct {
	// Context is what the flow's context begins with. It is copied, and so is the whole of it for each result that adds to it and each
	// call of Context: it is for what is small.
	Context map[string]any
	// Concurrency is the number of nodes that run at once; 0 means DefaultConcurrency, 1 one after another.
	Concurrency int
	// Branch is the default branch of the flow, a member of the session; zero means the session's default.
	Branch ident.ID
	// Progress is told that a node is queued, starts, and ends. It is called by the goroutine that does so, at once for several
	// nodes; a panic of it is an error of the flow, which goes on.
	Progress func(Progress)
	// BranchCreated is called with each clone that the flow makes, once that has joined the session. A panic is an error of the
	// start, or of the spawned node whose branch it is.
	BranchCreated func(*session.Branch)
	// Reactive says what asks for further nodes; the zero value: nothing does. See On.
	Reactive Reactive
	// Journal keeps what has ended beyond this run; nil means that nobody does.
	Journal Journal
	// RetryFailed runs nodes again that the journal knows as failed, and decides anew about those that it knows as skipped.
	RetryFailed bool
	// Escalate is asked before each further attempt, and returns its arguments; an error fails the node. Nil takes those of the
	// escalation.
	Escalate func(ctx context.Context, in In, e *Escalation) (args any, err error)
}

// Journal keeps the ends of nodes, by their ids, for one graph. A run asks it for each node that could run before anything is done,
// and tells it of each end before anybody else hears of it and before a dependent starts: what is recorded is not run again, what
// is not recorded is. Cancelled and vetoed nodes are not recorded. Both methods are called at once for several nodes.
//
// An error ends the flow: what runs is cancelled, and Wait returns it.
type Journal interface {
	// Done returns what Record was given for the node; false where there is nothing. Result and Requests come back as the types that
	// they had.
	Done(ctx context.Context, node string) (Record, bool, error)
	// Record keeps the end of a node. Its context does not end with the flow.
	Record(ctx context.Context, node string, r Record) error
}

// Record is what a journal keeps of a node. The flow's context and a gate's veto follow from Result, spawned nodes from Requests, with
// which the builder is asked again.
type Record struct {
	State  State  `json:"state"`
	Result any    `json:"result,omitempty"`
	Error  string `json:"error,omitempty"`  // of a failed node
	Reason string `json:"reason,omitempty"` // of a skipped node
	// Requests are those that were accepted from this node, or not only because the flow was being cancelled, in order.
	Requests []any `json:"requests,omitempty"`
}
