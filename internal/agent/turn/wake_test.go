package turn

import (
	"fmt"
	"testing"
)

// rested is a process whose first input is worked through while work goes on in the background.
func rested(t *testing.T, o Options) State {
	s, _ := play(t, New(t0, o), InputAdmitted{ID: "a"}, Dispatched{})
	s.Awaits = true
	s, _ = play(t, s, Answered{1, 1, nil})
	return s
}

// P-044, P-053: a wake makes a process that rests ready and opens an agent turn of its own.
func TestWakeOfARestingProcess(t *testing.T) {
	s := rested(t, Options{})
	is(t, s, Blocked, OnInput)
	s, out := play(t, s, InputAdmitted{ID: "w", Wake: true})
	is(t, s, Ready, "")
	expect(t, out, WantSlot{})
	s, out = play(t, s, Dispatched{})
	expect(t, out, StartTurn{Turn: 2}, Deliver{Input: "w"}, StartInference{Inference: 2, Attempt: 1})
	if _, out = play(t, s, WakeRead{Input: "w"}); len(out) != 1 || out[0] != (Dropped{Why: "no such wake waits"}) {
		t.Errorf("read after its delivery: %v", out)
	}
}

// P-044: a wake that comes while an agent turn runs joins before the next provider call, also where the answer made no call.
func TestWakeInATurn(t *testing.T) {
	s, _ := play(t, New(t0, Options{RunToEnd: true}), InputAdmitted{ID: "a"}, Dispatched{})
	s, out := play(t, s, InputAdmitted{ID: "w", Wake: true})
	expect(t, out)
	s, out = play(t, s, Answered{1, 1, nil})
	expect(t, out, AppendAnswer{Inference: 1}, DropSlot{}, WantSlot{})
	_, out = play(t, s, Dispatched{})
	expect(t, out, Deliver{Input: "w"}, StartInference{Inference: 2, Attempt: 1})

	s, _ = play(t, New(t0, Options{}), InputAdmitted{ID: "a"}, Dispatched{}, Answered{1, 1, calls("c")})
	s, out = play(t, s, InputAdmitted{ID: "w", Wake: true})
	is(t, s, Blocked, OnTool)
	expect(t, out)
	_, out = play(t, s, ToolDone{1, "c"}, Dispatched{})
	expect(t, out, Deliver{Input: "w"}, StartInference{Inference: 2, Attempt: 1})
}

// P-044: a wake whose news was read is retired, and the process rests again; nothing else that waits goes with it.
func TestWakeRead(t *testing.T) {
	s := rested(t, Options{})
	s, _ = play(t, s, InputAdmitted{ID: "w", Wake: true})
	quiet, out := play(t, s, WakeRead{Input: "w"})
	is(t, quiet, Blocked, OnInput)
	expect(t, out, Retire{Input: "w"}, DropSlot{})
	s, out = play(t, s, InputAdmitted{ID: "b"}, WakeRead{Input: "b"}, WakeRead{Input: "w"})
	is(t, s, Ready, "")
	expect(t, out, Retire{Input: "w"})
	if _, out = play(t, s, Dispatched{}); out[1] != (Deliver{Input: "b"}) {
		t.Errorf("the input is not delivered: %v", list(out))
	}
}

// P-044: a wake is held while the process is paused, comes after Resume, and is cancelled by an interrupt and by the end.
func TestWakeOfAPausedProcess(t *testing.T) {
	s := rested(t, Options{})
	s, _ = play(t, s, Pause{})
	s, out := play(t, s, InputAdmitted{ID: "w", Wake: true})
	is(t, s, Blocked, OnPause)
	expect(t, out)
	if r, _ := play(t, s, WakeRead{Input: "w"}); len(r.Inputs) > 0 || r.Reason != OnPause {
		t.Errorf("read while paused: %+v", r)
	}
	resumed, out := play(t, s, Resume{})
	is(t, resumed, Ready, "")
	expect(t, out, WantSlot{})
	for _, e := range []Event{Interrupt{}, Terminate{Code: 137, Cause: Killed}} {
		if _, out := play(t, s, e); out[0] != (CancelInput{Input: "w"}) {
			t.Errorf("%T: %v", e, list(out))
		}
	}
}

// P-047, K-03: a run waits for work in the background before it ends with code 0, whether that wakes it or not.
func TestRunWaitsForTheBackground(t *testing.T) {
	s := rested(t, Options{RunToEnd: true})
	is(t, s, Blocked, OnBackground)
	still, _ := play(t, s, BackgroundEnded{})
	is(t, still, Blocked, OnBackground)
	s.Awaits = false
	ended, _ := play(t, s, BackgroundEnded{})
	is(t, ended, Terminated, "")
	if ended.Exit == nil || ended.Exit.Code != 0 {
		t.Errorf("exit %+v", ended.Exit)
	}
	woken, _ := play(t, s, InputAdmitted{ID: "w", Wake: true})
	is(t, woken, Ready, "")
	if woken, _ = play(t, woken, BackgroundEnded{}); woken.Status != Ready {
		t.Errorf("its end came before the wake: %+v", woken)
	}
	read, _ := play(t, woken, WakeRead{Input: "w"})
	is(t, read, Terminated, "")
	told, _ := play(t, woken, Dispatched{}, Answered{2, 1, nil})
	is(t, told, Terminated, "")
}

// P-044: a wake is taken by a process that takes no more inputs; nothing that has ended is lost.
func TestWakeBeyondTheInputs(t *testing.T) {
	s, _ := play(t, New(t0, Options{}), InputAdmitted{ID: "a"}, Dispatched{})
	for i := range MaxInputs {
		s, _ = play(t, s, InputAdmitted{ID: fmt.Sprint("i", i), After: true})
	}
	if _, _, err := Step(s, t0, InputAdmitted{ID: "b"}); err == nil {
		t.Error("one input more was taken")
	}
	if s, _ = play(t, s, InputAdmitted{ID: "w", Wake: true}); len(s.Inputs) != MaxInputs+1 {
		t.Errorf("%d inputs", len(s.Inputs))
	}
}
