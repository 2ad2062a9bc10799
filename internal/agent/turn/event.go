package turn

import (
	"time"

	"soma/internal/agent/model"
)

// Event is something that happened to a process. The types below are all there are.
type Event interface{ event() }

// InputAdmitted: an input was stored. It enters before the next provider call, or with After once the turn has ended.
type InputAdmitted Input

// WakeRead: all that a waiting wake tells was read. One that was delivered is over.
type WakeRead struct{ Input string }

// BackgroundEnded: work in the background has ended and nobody is to be woken for it. The host has set State.Awaits anew.
type BackgroundEnded struct{}

// Dispatched: the scheduler granted a slot.
type Dispatched struct{}

// Answered: the provider's attempt ended with a message that makes these calls, in order. A call is Settled when its result
// is known at once, because it was refused or malformed.
type Answered struct {
	Inference int64
	Attempt   int
	Calls     []Call
}

// Failed: the attempt ended with an error of the provider, in its own words. RetryAfter is 0 when the provider named none.
type Failed struct {
	Inference  int64
	Attempt    int
	Class      model.Class
	Words      string
	RetryAfter time.Duration
}

// Lost: the attempt vanished in a crash without a complete answer.
type Lost struct {
	Inference int64
	Attempt   int
}

// ToolDone: the result of a call of this inference's message is stored.
type ToolDone struct {
	Inference int64
	Call      string
}

// Woke: the time of a WaitUntil has come.
type Woke struct{}

// Pause, Resume and Interrupt are the signals of K-56.
type (
	Pause     struct{}
	Resume    struct{}
	Interrupt struct{}
)

// Terminate ends the process from any state; the code is not 0.
type Terminate struct {
	Code  int
	Cause Cause
	Words string
}

func (InputAdmitted) event()   {}
func (WakeRead) event()        {}
func (BackgroundEnded) event() {}
func (Dispatched) event()      {}
func (Answered) event()        {}
func (Failed) event()          {}
func (Lost) event()            {}
func (ToolDone) event()        {}
func (Woke) event()            {}
func (Pause) event()           {}
func (Resume) event()          {}
func (Interrupt) event()       {}
func (Terminate) event()       {}
