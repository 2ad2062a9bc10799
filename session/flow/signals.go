package flow

import (
	"soma/ident"
	"soma/session"
)

// Notice is what all signals of nodes say. Envelope.Op is the node's id.
type Notice struct {
	session.Envelope
	Flow ident.ID `json:"flow"`
	Node string   `json:"node"`
}

// The signals of nodes, on the session's observer. Each node is queued once, ends once, and what comes between comes in order;
// signals of different nodes may be emitted at once.
type (
	// NodeQueued announces a node.
	NodeQueued struct{ Notice }
	// NodeStarted says that an attempt begins. Skipped, cancelled and restored nodes have none.
	NodeStarted struct {
		Notice
		Branch  ident.ID `json:"branch"`
		Attempt int      `json:"attempt"`
	}
	// NodeCompleted is one of the four ends. Restored: the journal knew it.
	NodeCompleted struct {
		Notice
		Restored bool `json:"restored,omitempty"`
		// Rejected: it is a gate that said no.
		Rejected bool `json:"rejected,omitempty"`
	}
	// NodeFailed is one of the four ends.
	NodeFailed struct {
		Notice
		Restored bool   `json:"restored,omitempty"`
		Error    string `json:"error"`
	}
	// NodeSkipped is one of the four ends.
	NodeSkipped struct {
		Notice
		Restored bool   `json:"restored,omitempty"`
		Reason   string `json:"reason"`
	}
	// NodeCancelled is one of the four ends.
	NodeCancelled struct{ Notice }
	// NodeSpawned says that a node has been accepted while the flow runs; NodeQueued follows.
	NodeSpawned struct {
		Notice
		Emitter string `json:"emitter,omitempty"`
	}
	// NodePaused says that a node could run, but for the pause.
	NodePaused struct{ Notice }
	// NodeEscalated says that a node gets another attempt.
	NodeEscalated struct {
		Notice
		Attempt int    `json:"attempt"` // the one that has asked for it
		Reason  string `json:"reason"`
	}
)

// Kind says what a [Progress] tells.
type Kind string

// The kinds. Every node has the first, the second if it runs, and exactly one of the others.
const (
	IsQueued    Kind = "queued"
	IsStarted   Kind = "started"
	IsCompleted Kind = "completed"
	IsFailed    Kind = "failed"
	IsSkipped   Kind = "skipped"
	IsCancelled Kind = "cancelled"
)

// Progress is told to [Options].Progress. A node that is attempted again has started several times.
type Progress struct {
	Flow ident.ID
	Node string
	Kind Kind
	// Err is why the node failed or was cancelled, if that is known.
	Err error
	// Ended is how many nodes of Total have ended, this one included if it has.
	Ended, Total int
}
