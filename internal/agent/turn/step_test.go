package turn

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"soma/internal/agent/model"
)

var t0 = time.UnixMilli(1_800_000_000_000)

// play feeds events one second apart and returns the state and the effects of the last one.
func play(t *testing.T, s State, events ...Event) (State, []Effect) {
	t.Helper()
	var out []Effect
	for i, e := range events {
		var err error
		at := time.UnixMilli(max(s.Since, t0.UnixMilli())).Add(time.Second)
		if s, out, err = Step(s, at, e); err != nil {
			t.Fatalf("event %d, %T%+v: %v", i, e, e, err)
		}
	}
	return s, out
}

func expect(t *testing.T, got []Effect, want ...Effect) {
	t.Helper()
	for i, e := range got {
		if n, ok := e.(Note); ok && n.Text != "" {
			got[i] = Note{} // the words of notes are not compared
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("effects\n got %s\nwant %s", list(got), list(want))
	}
}

func list(es []Effect) string {
	var b strings.Builder
	for _, e := range es {
		fmt.Fprintf(&b, " %T%+v", e, e)
	}
	return b.String()
}

func is(t *testing.T, s State, status Status, why Reason) {
	t.Helper()
	if s.Status != status || s.Reason != why {
		t.Errorf("state is %s (%s), want %s (%s)", s.Status, s.Reason, status, why)
	}
}

func calls(ids ...string) (cs []Call) {
	for _, id := range ids {
		cs = append(cs, Call{ID: id})
	}
	return cs
}

// K-06, K-07, K-01, K-03: one input of a run, from its admission over a tool call to the end with code 0; while the tool
// runs the process is Blocked(tool result).
func TestRunToEnd(t *testing.T) {
	s, out := play(t, New(t0, Options{RunToEnd: true}), InputAdmitted{ID: "a"})
	is(t, s, Ready, "")
	expect(t, out, WantSlot{})
	s, out = play(t, s, Dispatched{})
	is(t, s, Running, "")
	expect(t, out, StartTurn{1}, Deliver{"a"}, StartInference{1, 1})
	s, out = play(t, s, Answered{1, 1, calls("c")})
	is(t, s, Blocked, OnTool)
	expect(t, out, AppendAnswer{1}, StartCalls{1, []string{"c"}}, DropSlot{})
	s, out = play(t, s, ToolDone{1, "c"})
	is(t, s, Ready, "")
	expect(t, out, AppendResult{Inference: 1, Call: "c"}, WantSlot{})
	s, out = play(t, s, Dispatched{})
	expect(t, out, StartInference{2, 1})
	s, out = play(t, s, Answered{2, 1, nil})
	is(t, s, Terminated, "")
	expect(t, out, AppendAnswer{2}, EndTurn{Turn: 1, Why: WhyDone, Inferences: 2}, Ended{Exit{Cause: Finished}}, DropSlot{})
	if _, _, err := Step(s, t0, InputAdmitted{ID: "b"}); !errors.Is(err, ErrEnded) {
		t.Errorf("input after the end: %v", err) // K-55
	}
}

// K-07b: a slice begins with its inference and ends, with its slot given back once, on tool calls, an answer, a failure, a
// loss, an interrupt and an end; a pause only marks it. What comes afterwards needs another dispatch.
func TestSlices(t *testing.T) {
	ends := map[string]struct {
		e   Event
		why Reason
	}{
		"tool calls": {Answered{1, 1, calls("x")}, OnTool}, "refused calls": {Answered{1, 1, []Call{{ID: "x", Settled: true}}}, ""},
		"answer": {Answered{1, 1, nil}, OnInput}, "retry": {Failed{Inference: 1, Attempt: 1, Class: model.Retryable}, OnProvider},
		"failure": {Failed{Inference: 1, Attempt: 1, Class: model.Fatal}, OnInput}, "loss": {Lost{1, 1}, ""},
		"interrupt": {Interrupt{}, OnInput}, "end": {Terminate{Code: 1, Cause: Killed}, ""},
	}
	for name, end := range ends {
		for _, paused := range []bool{false, true} {
			s, out := play(t, New(t0, Options{}), InputAdmitted{ID: "a"}, Dispatched{})
			if _, begins := out[len(out)-1].(StartInference); s.Status != Running || !begins {
				t.Fatalf("after the dispatch: %s, %s", s.Status, list(out))
			}
			if paused {
				s, _ = play(t, s, Pause{})
				is(t, s, Running, "")
			}
			s, out = play(t, s, end.e)
			if s.Status == Running || !paused && s.Reason != end.why {
				t.Errorf("%s, paused %v: %s (%s), want %q", name, paused, s.Status, s.Reason, end.why)
			}
			dropped := 0
			for _, e := range out {
				switch e.(type) {
				case DropSlot:
					dropped++
				case StartInference:
					t.Errorf("%s: an inference without a dispatch", name)
				}
			}
			if dropped != 1 {
				t.Errorf("%s, paused %v: the slot is given back %d times: %s", name, paused, dropped, list(out))
			}
		}
	}
}

// K-02: a kept process waits for input, and the reason is there with its since.
func TestKeptWaitsForInput(t *testing.T) {
	s, _ := play(t, New(t0, Options{}), InputAdmitted{ID: "a"}, Dispatched{})
	at := t0.Add(time.Hour)
	s, _, err := Step(s, at, Answered{1, 1, nil})
	if err != nil {
		t.Fatal(err)
	}
	is(t, s, Blocked, OnInput)
	if s.Since != at.UnixMilli() {
		t.Errorf("since %d", s.Since)
	}
	s, out := play(t, s, InputAdmitted{ID: "b", After: true})
	is(t, s, Ready, "")
	expect(t, out, WantSlot{})
	_, out = play(t, s, Dispatched{})
	expect(t, out, StartTurn{2}, Deliver{"b"}, StartInference{2, 1})
}

// K-10: results come in any order and join the branch in call order; K-11: a refused call never starts.
func TestParallelCalls(t *testing.T) {
	s, out := play(t, New(t0, Options{}), InputAdmitted{ID: "a"}, Dispatched{},
		Answered{1, 1, []Call{{ID: "x"}, {ID: "bad", Settled: true}, {ID: "y"}, {ID: "z"}}})
	expect(t, out, AppendAnswer{1}, StartCalls{1, []string{"x", "y", "z"}}, DropSlot{})
	s, out = play(t, s, ToolDone{1, "z"})
	expect(t, out)
	s, out = play(t, s, ToolDone{1, "x"})
	expect(t, out, AppendResult{Inference: 1, Call: "x"}, AppendResult{Inference: 1, Call: "bad"})
	s, out = play(t, s, ToolDone{1, "x"})
	expect(t, out, Dropped{"no such call is open"})
	_, out = play(t, s, ToolDone{1, "y"})
	expect(t, out, AppendResult{Inference: 1, Call: "y"}, AppendResult{Inference: 1, Call: "z"}, WantSlot{})

	s, out = play(t, New(t0, Options{}), InputAdmitted{ID: "a"}, Dispatched{}, Answered{1, 1, []Call{{ID: "bad", Settled: true}}})
	is(t, s, Ready, "")
	expect(t, out, AppendAnswer{1}, AppendResult{Inference: 1, Call: "bad"}, DropSlot{}, WantSlot{})
}

// K-14: steering enters before the next provider call and keeps the turn open, follow-ups come one a turn after it.
func TestSteeringAndFollowUp(t *testing.T) {
	s, out := play(t, New(t0, Options{RunToEnd: true}), InputAdmitted{ID: "a"}, Dispatched{},
		InputAdmitted{ID: "later", After: true}, InputAdmitted{ID: "last", After: true}, InputAdmitted{ID: "now"},
		Answered{1, 1, nil})
	expect(t, out, AppendAnswer{1}, DropSlot{}, WantSlot{})
	s, out = play(t, s, InputAdmitted{ID: "too"}, InputAdmitted{ID: "too"})
	expect(t, out, Dropped{"the input is already here"})
	s, out = play(t, s, Dispatched{})
	expect(t, out, Deliver{"now"}, Deliver{"too"}, StartInference{2, 1})
	s, out = play(t, s, Answered{2, 1, nil})
	expect(t, out, AppendAnswer{2}, EndTurn{Turn: 1, Why: WhyDone, Inferences: 2}, DropSlot{}, WantSlot{})
	s, out = play(t, s, Dispatched{})
	expect(t, out, StartTurn{2}, Deliver{"later"}, StartInference{3, 1})
	s, out = play(t, s, Answered{3, 1, nil}, Dispatched{})
	expect(t, out, StartTurn{3}, Deliver{"last"}, StartInference{4, 1})
	s, _ = play(t, s, Answered{4, 1, nil})
	is(t, s, Terminated, "")
}

// K-14: the bound on waiting inputs refuses, and the state stays as it was.
func TestInputsFull(t *testing.T) {
	s, _ := play(t, New(t0, Options{}), InputAdmitted{ID: "a"}, Dispatched{})
	for i := range MaxInputs {
		s, _ = play(t, s, InputAdmitted{ID: fmt.Sprintf("%064d", i), After: i%2 == 0})
	}
	after, out, err := Step(s, t0, InputAdmitted{ID: "one more"})
	if !errors.Is(err, ErrInputsFull) || out != nil || !reflect.DeepEqual(after, s) {
		t.Fatalf("Step = %v, %v", out, err)
	}
	for _, e := range []Event{InputAdmitted{}, InputAdmitted{ID: strings.Repeat("x", MaxID+1)}} {
		if _, _, err := Step(s, t0, e); !errors.Is(err, ErrEvent) {
			t.Errorf("%+v: %v", e, err)
		}
	}
}

// K-31, K-32: a retryable failure is tried a second time after the wait the provider asked for, under the next number; the
// second failure ends the turn with the provider's words and leaves the process waiting for input.
func TestRetry(t *testing.T) {
	s, _ := play(t, New(t0, Options{RunToEnd: true}), InputAdmitted{ID: "a"}, Dispatched{})
	at := time.UnixMilli(s.Since)
	s, out, err := Step(s, at, Failed{Inference: 1, Attempt: 1, Class: model.Retryable, Words: "slow down", RetryAfter: 7 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	is(t, s, Blocked, OnProvider)
	until := at.Add(7 * time.Second)
	expect(t, out, Supersede{1, 1}, WaitUntil{until.UnixMilli()}, DropSlot{})
	if s.Until != until.UnixMilli() || s.Detail != "slow down" {
		t.Errorf("until %d, detail %q", s.Until, s.Detail)
	}
	s, out, _ = Step(s, until.Add(-time.Millisecond), Woke{})
	is(t, s, Blocked, OnProvider)
	expect(t, out, WaitUntil{until.UnixMilli()})
	s, out, _ = Step(s, until, Woke{})
	expect(t, out, WantSlot{})
	s, out = play(t, s, Dispatched{})
	expect(t, out, StartInference{1, 2})
	s, out = play(t, s, Failed{Inference: 1, Attempt: 2, Class: model.Retryable, Words: "still busy"})
	is(t, s, Blocked, OnInput)
	expect(t, out, Supersede{1, 2}, Note{}, EndTurn{Turn: 1, Why: WhyFailed, Words: "still busy", Inferences: 1}, DropSlot{})
	s, out = play(t, s, InputAdmitted{ID: "b"}, Dispatched{})
	expect(t, out, StartTurn{2}, Deliver{"b"}, StartInference{2, 1})
	s, _ = play(t, s, Failed{Inference: 2, Attempt: 1, Class: model.Retryable})
	is(t, s, Blocked, OnProvider) // the failures of the last inference are not this one's
}

// K-31: what is not retryable, and a wait beyond the cap, end the turn at once.
func TestNoRetry(t *testing.T) {
	for _, f := range []Failed{
		{Class: model.Fatal}, {Class: model.BadRequest}, {Class: model.TooLong},
		{Class: model.Retryable, RetryAfter: model.MaxRetryAfter + 1},
	} {
		f.Inference, f.Attempt, f.Words = 1, 1, "no"
		s, out := play(t, New(t0, Options{}), InputAdmitted{ID: "a"}, Dispatched{}, f)
		is(t, s, Blocked, OnInput)
		expect(t, out, Supersede{1, 1}, Note{}, EndTurn{Turn: 1, Why: WhyFailed, Words: "no", Inferences: 1}, DropSlot{})
		if s.Reason != OnInput || s.Detail != "the last turn failed: no" {
			t.Errorf("a failed turn leaves %s (%q), want it to wait for input and say why", s.Reason, s.Detail)
		}
	}
}

// K-32: what comes from an attempt that is not the current one changes nothing.
func TestLateAttempt(t *testing.T) {
	s, _ := play(t, New(t0, Options{}), InputAdmitted{ID: "a"}, Dispatched{}, Lost{1, 1}, Dispatched{})
	for _, e := range []Event{Answered{1, 1, nil}, Failed{Inference: 1, Attempt: 1, Class: model.Fatal}, Lost{1, 1}, Answered{2, 2, nil}} {
		got, out := play(t, s, e)
		if !reflect.DeepEqual(got, s) || len(out) != 1 {
			t.Errorf("%T: state %+v, effects %s", e, got, list(out))
		}
		if _, ok := out[0].(Dropped); !ok {
			t.Errorf("%T: %s", e, list(out))
		}
	}
}

// K-04: after a crash a process is interrupted and then goes on or is held; the third crash without progress blocks it.
func TestLost(t *testing.T) {
	begin := []Event{InputAdmitted{ID: "a"}, Dispatched{}}
	s, out := play(t, New(t0, Options{}), append(begin, Lost{1, 1})...)
	is(t, s, Ready, "")
	expect(t, out, Supersede{1, 1}, Note{}, DropSlot{}, WantSlot{})
	s, out = play(t, s, InputAdmitted{ID: "b"}, Dispatched{})
	expect(t, out, Deliver{"b"}, StartInference{1, 2})
	s, _ = play(t, s, Lost{1, 2}, Dispatched{})
	saved := s
	s, out = play(t, s, Lost{1, 3})
	is(t, s, Blocked, OnCrashLoop)
	expect(t, out, Supersede{1, 3}, Note{}, DropSlot{})
	s, _ = play(t, s, InputAdmitted{ID: "c"})
	is(t, s, Blocked, OnCrashLoop)
	s, _ = play(t, s, Resume{})
	is(t, s, Ready, "")
	s, out = play(t, s, Dispatched{})
	expect(t, out, Deliver{"c"}, StartInference{1, 4})
	s, _ = play(t, s, Lost{1, 4})
	is(t, s, Ready, "") // resuming began the count anew

	s, _ = play(t, saved, Answered{1, 3, calls("x")}, ToolDone{1, "x"}, Dispatched{}, Lost{2, 1})
	is(t, s, Ready, "") // an answer is progress: the count began anew

	s, out = play(t, New(t0, Options{Hold: true}), append(begin, Lost{1, 1})...)
	is(t, s, Blocked, Interrupted)
	expect(t, out, Supersede{1, 1}, Note{}, DropSlot{})
	_, out = play(t, s, Resume{}, Dispatched{})
	expect(t, out, StartInference{1, 2})
}

// K-56: Pause acts at the next step boundary while inputs queue; Resume makes Ready.
func TestPause(t *testing.T) {
	s, _ := play(t, New(t0, Options{RunToEnd: true}), InputAdmitted{ID: "a"}, Dispatched{}, Pause{})
	is(t, s, Running, "")
	s, out := play(t, s, Answered{1, 1, calls("x")})
	is(t, s, Blocked, OnTool) // running tools finish
	expect(t, out, AppendAnswer{1}, StartCalls{1, []string{"x"}}, DropSlot{})
	s, out = play(t, s, ToolDone{1, "x"})
	is(t, s, Blocked, OnPause)
	expect(t, out, AppendResult{Inference: 1, Call: "x"})
	s, out = play(t, s, InputAdmitted{ID: "b"}, Pause{})
	is(t, s, Blocked, OnPause)
	expect(t, out, Dropped{"already paused"})
	s, out = play(t, s, Resume{})
	expect(t, out, WantSlot{})
	s, out = play(t, s, Pause{})
	is(t, s, Blocked, OnPause)
	expect(t, out, DropSlot{})
	s, out = play(t, s, Resume{}, Dispatched{})
	expect(t, out, Deliver{"b"}, StartInference{2, 1})
	s, out = play(t, s, Pause{}, Answered{2, 1, nil})
	is(t, s, Blocked, OnPause) // ended turns do not end a paused process
	expect(t, out, AppendAnswer{2}, EndTurn{Turn: 1, Why: WhyDone, Inferences: 2}, DropSlot{})
	s, out = play(t, s, Resume{})
	is(t, s, Terminated, "")
	expect(t, out, Ended{Exit{Cause: Finished}})

	s, _ = play(t, New(t0, Options{}), Pause{}, InputAdmitted{ID: "a"})
	is(t, s, Blocked, OnPause)
	_, out = play(t, New(t0, Options{}), Resume{})
	expect(t, out, Dropped{"not paused"})
	s, _ = play(t, New(t0, Options{}), InputAdmitted{ID: "a"}, Dispatched{}, Pause{}, Failed{Inference: 1, Attempt: 1, Class: model.Retryable})
	is(t, s, Blocked, OnPause)
	_, out = play(t, s, Resume{}, Dispatched{})
	expect(t, out, StartInference{1, 2})
}

// K-12, K-56, K-09: Interrupt ends the turn, stops what runs, pairs the history with cancelled results and lets the process
// live; late results are dropped.
func TestInterrupt(t *testing.T) {
	s, _ := play(t, New(t0, Options{RunToEnd: true}), InputAdmitted{ID: "a"}, Dispatched{}, InputAdmitted{ID: "b"})
	cut, out := play(t, s, Interrupt{})
	expect(t, out, CancelInference{1, 1}, Supersede{1, 1}, CancelInput{"b"}, EndTurn{Turn: 1, Why: WhyInterrupted, Inferences: 1}, DropSlot{})
	_, out = play(t, cut, InputAdmitted{ID: "c"}, Dispatched{})
	expect(t, out, StartTurn{2}, Deliver{"c"}, StartInference{2, 1}) // not one more attempt of the old one
	s, out = play(t, s, Answered{1, 1, calls("x", "y", "z")}, ToolDone{1, "y"}, Interrupt{})
	is(t, s, Blocked, OnInput)
	expect(t, out, CancelCalls{1, []string{"x", "z"}},
		AppendResult{1, "x", true}, AppendResult{1, "y", false}, AppendResult{1, "z", true},
		CancelInput{"b"}, EndTurn{Turn: 1, Why: WhyInterrupted, Inferences: 1})
	s, out = play(t, s, ToolDone{1, "x"})
	expect(t, out, Dropped{"no such call is open"})
	s, out = play(t, s, Interrupt{})
	expect(t, out, Dropped{"nothing is being worked on"})
	// the provider numbers its calls from one again: a late result of the old ones is still no result of the new
	s, _ = play(t, s, InputAdmitted{ID: "c"}, Dispatched{}, Answered{2, 1, calls("x")})
	_, out = play(t, s, ToolDone{1, "x"})
	expect(t, out, Dropped{"no such call is open"})

	s, out = play(t, New(t0, Options{}), InputAdmitted{ID: "a"}, Interrupt{})
	is(t, s, Blocked, OnInput)
	expect(t, out, CancelInput{"a"}, DropSlot{})
	_, out = play(t, s, Dispatched{}) // the slot was on its way
	expect(t, out, Dropped{"the process is not ready"}, DropSlot{})
}

// K-56, K-03: Terminate ends a process from any state with a code that is not 0 and a typed cause.
func TestTerminate(t *testing.T) {
	kill := Terminate{Code: 137, Cause: Killed, Words: "by a person"}
	states := map[string][]Event{
		"created":     {},
		"ready":       {InputAdmitted{ID: "a"}},
		"running":     {InputAdmitted{ID: "a"}, Dispatched{}},
		"tool result": {InputAdmitted{ID: "a"}, Dispatched{}, Answered{1, 1, calls("x")}},
		"waiting":     {InputAdmitted{ID: "a"}, Dispatched{}, Answered{1, 1, nil}},
		"paused":      {InputAdmitted{ID: "a"}, Pause{}},
	}
	for name, events := range states {
		s, _ := play(t, New(t0, Options{}), events...)
		s, out := play(t, s, kill)
		is(t, s, Terminated, "")
		if s.Exit == nil || *s.Exit != (Exit{137, Killed, "by a person"}) {
			t.Errorf("%s: exit %+v", name, s.Exit)
		}
		ended := 0
		for _, e := range out {
			if _, ok := e.(Ended); ok {
				ended++
			}
		}
		if ended != 1 {
			t.Errorf("%s: %s", name, list(out))
		}
		_, out = play(t, s, kill)
		expect(t, out, Dropped{"the process has ended"})
	}
	for _, e := range []Terminate{{Code: 0, Cause: Killed}, {Code: 1, Cause: Finished}} {
		if _, _, err := Step(New(t0, Options{}), t0, e); !errors.Is(err, ErrEvent) {
			t.Errorf("%+v: %v", e, err)
		}
	}
}

// K-07c: a turn ends after its limit of inferences, and the process waits for input.
func TestInferenceLimit(t *testing.T) {
	s, _ := play(t, New(t0, Options{RunToEnd: true}), InputAdmitted{ID: "a"})
	var out []Effect
	for i := range int64(MaxInferences) {
		s, out = play(t, s, Dispatched{}, Answered{i + 1, 1, calls("x")}, ToolDone{i + 1, "x"})
	}
	is(t, s, Blocked, OnInput)
	expect(t, out, AppendResult{Inference: MaxInferences, Call: "x"}, Note{}, EndTurn{Turn: 1, Why: WhyLimit, Inferences: MaxInferences})
	// the last inference of a turn may still be tried again
	s, _ = play(t, New(t0, Options{Max: 1}), InputAdmitted{ID: "a"}, Dispatched{}, Lost{1, 1})
	is(t, s, Ready, "")
}

func TestBadCalls(t *testing.T) {
	s, _ := play(t, New(t0, Options{}), InputAdmitted{ID: "a"}, Dispatched{})
	for _, cs := range [][]Call{calls("x", "x"), calls(""), calls(strings.Repeat("x", MaxID+1)), make([]Call, MaxCalls+1)} {
		if got, out, err := Step(s, t0, Answered{1, 1, cs}); !errors.Is(err, ErrEvent) || out != nil || !reflect.DeepEqual(got, s) {
			t.Errorf("%d calls: %v", len(cs), err)
		}
	}
}

// The largest state fits the row of a neuron and comes back as it was.
func TestStateSize(t *testing.T) {
	s, _ := play(t, New(t0, Options{}), InputAdmitted{ID: "a"}, Dispatched{})
	var cs []Call
	for i := range MaxCalls {
		cs = append(cs, Call{ID: fmt.Sprintf("%064d", i), Settled: i > 0})
	}
	s, _ = play(t, s, Answered{1, 1, cs})
	for i := range MaxInputs {
		s, _ = play(t, s, InputAdmitted{ID: fmt.Sprintf("%064d", i), After: true})
	}
	s.Detail = strings.Repeat("\x01", MaxDetail)
	b, err := json.Marshal(s)
	if err != nil || len(b) > 64<<10 {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	var back State
	if err := json.Unmarshal(b, &back); err != nil || !reflect.DeepEqual(back, s) {
		t.Fatalf("the state did not come back: %v", err)
	}
}
