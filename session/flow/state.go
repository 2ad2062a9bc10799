package flow

import (
	"fmt"

	"soma/session"
)

// State says how far a node has come. Programs see the last four: what every node ends in, exactly once.
type State uint8

// The states.
const (
	waiting State = iota // for predecessors, or to be announced
	ready                // for a slot
	held                 // the flow is paused
	running
	Completed
	Failed
	Skipped
	Cancelled
)

var stateNames = [...]string{"waiting", "ready", "held", "running", "completed", "failed", "skipped", "cancelled"}

// String is the state's name, such as "completed".
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// MarshalText writes the name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a name. The error wraps [session.ErrInvalid].
func (s *State) UnmarshalText(text []byte) error {
	for i, name := range stateNames {
		if name == string(text) {
			*s = State(i)
			return nil
		}
	}
	return fmt.Errorf("cannot read a state: %w name %q", session.ErrInvalid, text)
}

func (s State) final() bool { return s >= Completed }

// step is what happens to a node.
type step uint8

const (
	freed    step = iota // all predecessors have ended
	paused               // it could run, but the flow is paused
	resumed              // the flow goes on
	taken                // a slot is free
	again                // it has escalated and gets another attempt
	complete             // it has done its work
	fail
	skip   // nothing leads to it, or a gate vetoes it
	cancel // the flow is cancelled
)

// steps is the whole machine of a node; what is not in it cannot happen.
var steps = map[State]map[step]State{
	waiting: {freed: ready, paused: held, skip: Skipped, cancel: Cancelled},
	ready:   {taken: running, paused: held, cancel: Cancelled},
	held:    {resumed: ready, cancel: Cancelled},
	running: {again: waiting, complete: Completed, fail: Failed, skip: Skipped, cancel: Cancelled},
}

// next is the one transition function of nodes. What the table does not have is a defect of this package.
func (s State) next(e step) State {
	next, ok := steps[s][e]
	if !ok {
		panic(fmt.Sprintf("flow: a node that is %s cannot take step %d", s, e))
	}
	return next
}

// ends is the step that leads to a final state.
var ends = map[State]step{Completed: complete, Failed: fail, Skipped: skip, Cancelled: cancel}

// phase says how far a flow has come.
type phase uint8

const (
	going phase = iota
	pausing
	cancelling
	over
)

// order is what a flow is told.
type order uint8

const (
	toPause order = iota
	toResume
	toCancel
	toEnd
)

// phases is the whole machine of a flow; what is not in it is refused.
var phases = map[phase]map[order]phase{
	going:      {toPause: pausing, toResume: going, toCancel: cancelling, toEnd: over},
	pausing:    {toPause: pausing, toResume: going, toCancel: cancelling, toEnd: over},
	cancelling: {toEnd: over},
}

// next is the one transition function of flows; it is false where the table has nothing.
func (p phase) next(o order) (phase, bool) {
	next, ok := phases[p][o]
	return next, ok
}
