package neuron

import (
	"context"
	"encoding/json"
	"time"

	"soma/ident"
)

// Policy says what happens to an execution that a crash interrupted (N-10).
type Policy string

// The policies.
const (
	Idempotent Policy = "idempotent" // run again
	Attach     Policy = "attach"     // ask the system that ran it
	Once       Policy = "once"       // never again: its outcome is unknown
)

// Execution is slow work outside a turn. Its row is committed with the turn that starts it, before any side effect, and
// goes in the commit of the turn that takes its outcome.
type Execution struct {
	// ID with Attempt in its last bits is the ID of the outcome's delivery: a late outcome of an old attempt is told apart.
	ID      ident.ID `json:"id"`
	Attempt int      `json:"attempt"` // from 1, at most 65,535
	Neuron  ID       `json:"neuron"`
	// Kind names the registered Adapter.
	Kind   string          `json:"kind"`
	Policy Policy          `json:"policy"`
	Input  json.RawMessage `json:"input"`
	// Value is what Input encodes, for the adapter that runs in the program that started the execution. It is not kept: after
	// a restart it is nil.
	Value any `json:"-"`
	// Then is the alias under which the outcome, an Ended, is delivered to Neuron.
	Then     string        `json:"then"`
	Deadline time.Duration `json:"deadline,omitempty"` // of one run; 0: none
	// Depth and Correlation are those of the turn that started it; the outcome carries them on.
	Depth       int       `json:"depth,omitempty"`
	Correlation ident.ID  `json:"correlation,omitzero"`
	Causation   ident.ID  `json:"causation,omitzero"`
	StartedAt   time.Time `json:"started_at"`
	// Crashes counts the runs that a crash of the daemon interrupted; Limits.Crashes of them end it.
	Crashes int `json:"crashes,omitempty"`
	// Estimate is the reserved cost in nano-dollars, 0 where none applies.
	Estimate int64 `json:"estimate,omitempty"`
}

// OutcomeID is the ID of the delivery that brings the outcome.
func (x *Execution) OutcomeID() ident.ID { return x.ID.WithAttempt(uint16(x.Attempt)) }

// Status says how an execution ended.
type Status string

// The ends of an execution.
const (
	Done    Status = "done"
	Failed  Status = "failed"
	Unknown Status = "unknown" // a crash hid the outcome
)

// Ended is the message that brings an outcome to the neuron.
type Ended struct {
	ID      ident.ID        `json:"id"`
	Attempt int             `json:"attempt"`
	Status  Status          `json:"status"`
	Payload json.RawMessage `json:"payload,omitempty"`
	Error   string          `json:"error,omitempty"`
}

// Adapter performs one kind of execution. Its methods are called from several goroutines at once, one per execution.
type Adapter interface {
	// Run performs x and returns its outcome's payload. An error makes the outcome Failed with the error's text. The
	// context ends at the deadline, when the execution is cancelled, and when the daemon stops: an outcome that comes
	// after a stop is not delivered, the next start recovers the execution instead.
	Run(ctx context.Context, x Execution) (json.RawMessage, error)
	// Recover is asked after a restart for an execution of policy Attach. found false means that the outcome is Unknown.
	Recover(ctx context.Context, x Execution) (payload json.RawMessage, found bool, err error)
}
