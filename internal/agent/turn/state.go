package turn

import (
	"errors"
	"slices"
	"time"

	"soma/internal/agent/model"
)

// Bounds of one process's state, chosen so that its JSON stays below 64 KiB.
const (
	// MaxInferences is the default of inferences per agent turn.
	MaxInferences = 500
	// MaxCrashes is how often an inference may be lost in a crash without progress before the process is blocked.
	MaxCrashes = 3
	// MaxInputs is how many inputs may wait undelivered, MaxCalls how many calls one message may make.
	MaxInputs = 400
	MaxCalls  = model.MaxCalls
	// MaxID is the length in bytes of the id of an input or call; MaxDetail that of a stored text.
	MaxID     = model.MaxCallID
	MaxDetail = 1024
)

// Errors that a host acts on. Each leaves the state as it was.
var (
	// ErrEnded refuses an input to a terminated process.
	ErrEnded = errors.New("process ended")
	// ErrInputsFull refuses an input beyond MaxInputs.
	ErrInputsFull = errors.New("too many inputs wait")
	// ErrEvent reports an event that breaks a bound or rule of its type: a defect of the host.
	ErrEvent = errors.New("bad event")
)

// State is all that the machine remembers of one process. It is a value, stored as JSON in the row of the process's
// neuron; copy it freely, but change it through Step only.
type State struct {
	Status Status `json:"status"`
	// Reason, Detail and Until (Unix milliseconds, 0 none) belong to Blocked.
	Reason Reason `json:"reason,omitempty"`
	Detail string `json:"detail,omitempty"`
	Until  int64  `json:"until,omitempty"`
	// Since is when status or reason last changed, in Unix milliseconds.
	Since int64 `json:"since"`
	// Exit is set once Terminated.
	Exit *Exit `json:"exit,omitempty"`

	// Turn counts agent turns; Open says that one is being worked on, Spent how many inferences it has begun.
	Turn  int64 `json:"turn,omitempty"`
	Open  bool  `json:"open,omitempty"`
	Spent int   `json:"spent,omitempty"`
	// Done says that the last turn ended by itself: its input is worked through.
	Done bool `json:"done,omitempty"`

	// Inference counts inferences over the process's life; Attempt numbers the tries of the current one from 1, and is 0
	// once it is answered or given up. Failures counts its refusals by the provider, Crashes the losses since progress.
	Inference int64 `json:"inference,omitempty"`
	Attempt   int   `json:"attempt,omitempty"`
	Failures  int   `json:"failures,omitempty"`
	Crashes   int   `json:"crashes,omitempty"`

	// Calls are the calls of the last answer whose results are not yet in the branch, in call order.
	Calls []Call `json:"calls,omitempty"`
	// Inputs are admitted and neither delivered nor cancelled, in order of admission.
	Inputs []Input `json:"inputs,omitempty"`

	Paused bool `json:"paused,omitempty"`
	// Awaits says that work runs in the background whose end will wake the process; RunToEnd waits for it. The host sets it
	// before an event by which the process may end.
	Awaits bool `json:"awaits,omitempty"`
	Options
}

// Options are fixed when a process is made.
type Options struct {
	// RunToEnd ends the process with code 0 once its inputs are worked through; else it waits for more.
	RunToEnd bool `json:"run_to_end,omitempty"`
	// Hold leaves the process blocked as interrupted after a crash, until Resume; else it goes on by itself (K-04).
	Hold bool `json:"hold,omitempty"`
	// Max is the number of inferences per agent turn; 0 means MaxInferences.
	Max int `json:"max,omitempty"`
}

// Call is one tool call of an answer. Settled means that its result is known.
type Call struct {
	ID      string `json:"id"`
	Settled bool   `json:"settled,omitempty"`
}

// Input is one admitted input: a steering message, or with After a follow-up for when the turn has ended (K-14). A Wake tells
// that work in the background has ended; it joins like a steering message, unless WakeRead comes first.
type Input struct {
	ID    string `json:"id"`
	After bool   `json:"after,omitempty"`
	Wake  bool   `json:"wake,omitempty"`
}

// New returns the state of a process just created at the given time.
func New(at time.Time, o Options) State {
	return State{Status: Created, Since: at.UnixMilli(), Options: o}
}

func (s State) clone() State {
	s.Calls = slices.Clone(s.Calls)
	s.Inputs = slices.Clone(s.Inputs)
	return s
}

func (s State) max() int {
	if s.Max > 0 {
		return s.Max
	}
	return MaxInferences
}
