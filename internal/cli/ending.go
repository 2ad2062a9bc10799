package cli

import (
	"soma/internal/cli/exit"
	"soma/wire"
)

// ending finds out from the events of a process when its watcher is done, and with which exit code.
type ending struct {
	attach bool   // nothing but the end of the process is an end
	keep   bool   // the process waits for more input when its task is worked through
	input  string // whose cancellation is an end

	state  string // of the process
	reason string // of that state
	done   bool
	code   int
	waits  bool // the process is still there and waits for input
}

// event takes an event of the process.
func (e *ending) event(ev wire.Event) error {
	switch ev.Kind {
	case wire.ProcessExited:
		return show(ev, func(b wire.StateEvent) {
			e.done = true
			if b.ExitCode != nil {
				e.code = *b.ExitCode
			}
		})
	case wire.InputEnded:
		return show(ev, func(b wire.InputEvent) {
			if !e.attach && b.ClientID == e.input && b.State == "cancelled" {
				e.leave(exit.Failed)
			}
		})
	case wire.StepStarted, wire.StepEnded, wire.StepFailed, wire.ToolResult, wire.NoteAdded, wire.ProcessState:
		return show(ev, func(b carriesState) { e.move(b.State) })
	case wire.TurnEnded:
		return show(ev, func(b wire.TurnEndedEvent) {
			e.move(b.State)
			switch {
			case e.attach || e.state != wire.Blocked || b.Why == whyTerminated: // its end follows, or its next turn
			case b.Why != whyDone:
				e.leave(exit.Failed)
			case e.keep:
				e.leave(exit.OK)
			}
		})
	}
	return nil
}

// carriesState is what the bodies of events have in common.
type carriesState struct {
	State *wire.State `json:"state"`
}

func (e *ending) move(s *wire.State) {
	if s != nil {
		e.state, e.reason = s.State, s.Reason
	}
}

func (e *ending) leave(code int) { e.done, e.waits, e.code = true, true, code }
