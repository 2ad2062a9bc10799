package turn

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
	"soma/internal/agent/model"
	"soma/message"
)

// host performs effects as a daemon would and checks what must hold for all of them.
type host struct {
	t        *rapid.T
	s        State
	now      time.Time
	inputs   int
	fate     map[string]string // input: "", delivered, cancelled
	branch   []message.Message
	answer   []Call
	slot     string // "", queued, running
	live     map[string]bool
	turnOpen bool
}

func (h *host) step(e Event) {
	before, _ := json.Marshal(h.s)
	s, out, err := Step(h.s, h.now, e)
	if err != nil {
		h.t.Fatalf("%T%+v in %s (%s): %v", e, e, h.s.Status, h.s.Reason, err)
	}
	if after, _ := json.Marshal(h.s); string(after) != string(before) {
		h.t.Fatal("Step changed the old state")
	}
	if s.Status != h.s.Status && Move(h.s.Status, s.Status) != nil && !(h.s.Status == Created && s.Status == Blocked) {
		h.t.Fatalf("%T moved %s to %s", e, h.s.Status, s.Status)
	}
	h.s = s
	for _, f := range out {
		h.perform(f)
	}
	h.check()
}

func (h *host) end(input, how string) {
	if was, ok := h.fate[input]; !ok || was != "" {
		h.t.Fatalf("input %s is %s, was %q", input, how, was)
	}
	h.fate[input] = how
}

func (h *host) perform(f Effect) {
	switch f := f.(type) {
	case WantSlot:
		if h.slot != "" {
			h.t.Fatalf("WantSlot while %s", h.slot)
		}
		h.slot = "queued"
	case DropSlot:
		h.slot = ""
	case StartTurn:
		if h.turnOpen {
			h.t.Fatal("a turn starts in a turn")
		}
		h.turnOpen = true
	case EndTurn:
		if !h.turnOpen {
			h.t.Fatal("a turn ends twice")
		}
		h.turnOpen = false
	case Deliver:
		h.end(f.Input, "delivered")
		h.branch = append(h.branch, message.Message{Role: message.User})
	case CancelInput:
		h.end(f.Input, "cancelled")
	case Retire:
		h.end(f.Input, "retired")
	case StartInference:
		if err := message.CheckPaired(h.branch); err != nil {
			h.t.Fatal(err)
		}
		if len(h.branch) == 0 || h.slot != "running" {
			h.t.Fatalf("an inference starts over %d messages, slot %q", len(h.branch), h.slot)
		}
	case AppendAnswer:
		m := message.Message{Role: message.Assistant}
		for _, c := range h.answer {
			m.Calls = append(m.Calls, message.Call{ID: c.ID})
		}
		h.branch = append(h.branch, m)
	case StartCalls:
		for _, c := range f.Calls {
			h.live[c] = true
		}
	case CancelCalls:
		for _, c := range f.Calls {
			if !h.live[c] {
				h.t.Fatalf("call %s is cancelled and does not run", c)
			}
			delete(h.live, c)
		}
	case AppendResult:
		if h.live[f.Call] {
			h.t.Fatalf("the result of %s comes while it runs", f.Call)
		}
		h.branch = append(h.branch, message.Message{Role: message.Tool, CallID: f.Call})
	case Note:
		h.branch = append(h.branch, message.Message{Role: message.Note})
	}
}

func (h *host) check() {
	want := map[Status]string{Ready: "queued", Running: "running"}[h.s.Status]
	if h.slot != want {
		h.t.Fatalf("slot %q in %s (%s)", h.slot, h.s.Status, h.s.Reason)
	}
	tools := h.s.Status == Blocked && h.s.Reason == OnTool
	if tools != (len(h.live) > 0) {
		h.t.Fatalf("%d calls run in %s (%s)", len(h.live), h.s.Status, h.s.Reason)
	}
	if err := message.CheckPaired(h.branch); err != nil && !tools {
		h.t.Fatalf("%s (%s): %v", h.s.Status, h.s.Reason, err)
	}
	waiting := 0
	for _, how := range h.fate {
		if how == "" {
			waiting++
		}
	}
	if waiting != len(h.s.Inputs) {
		h.t.Fatalf("%d inputs wait, the state knows %d", waiting, len(h.s.Inputs))
	}
	if h.turnOpen != h.s.Open {
		h.t.Fatalf("turn open %v, state says %v", h.turnOpen, h.s.Open)
	}
	idle := h.s.Status == Blocked && (h.s.Reason == OnInput || h.s.Reason == OnBackground) || h.s.Status == Terminated
	if idle && (waiting > 0 || h.s.Open) {
		h.t.Fatalf("%s (%s) with %d inputs, turn open %v", h.s.Status, h.s.Reason, waiting, h.s.Open)
	}
	b, _ := json.Marshal(h.s)
	var back State
	if err := json.Unmarshal(b, &back); err != nil {
		h.t.Fatal(err)
	}
	if b2, _ := json.Marshal(back); string(b2) != string(b) {
		h.t.Fatalf("state %s comes back as %s", b, b2)
	}
}

func (h *host) callID(t *rapid.T) string {
	return fmt.Sprintf("c%d", rapid.IntRange(0, 3).Draw(t, "call"))
}

// attempt draws the current attempt, or now and then an old one.
func (h *host) attempt(t *rapid.T) (int64, int) {
	if rapid.IntRange(0, 9).Draw(t, "late") == 0 {
		return h.s.Inference, max(h.s.Attempt-1, 0)
	}
	return h.s.Inference, h.s.Attempt
}

// K-06, K-09, K-14: whatever comes in whatever order, history is paired, no move is illegal, each input is delivered or
// cancelled once and none is lost, slots are taken and given back in pairs, and nothing stands still with work to do.
func TestAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &host{t: t, now: t0, fate: map[string]string{}, live: map[string]bool{}}
		h.s = New(t0, Options{
			RunToEnd: rapid.Bool().Draw(t, "run to end"), Hold: rapid.Bool().Draw(t, "hold"),
			Max: rapid.IntRange(1, 4).Draw(t, "max"),
		})
		t.Repeat(map[string]func(*rapid.T){
			"input": func(t *rapid.T) {
				if h.s.Status == Terminated {
					t.Skip()
				}
				id := fmt.Sprint("i", h.inputs)
				h.inputs++
				h.fate[id] = ""
				kind := rapid.IntRange(0, 2).Draw(t, "steer, after or wake")
				h.step(InputAdmitted{ID: id, After: kind == 1, Wake: kind == 2})
			},
			"read": func(t *rapid.T) {
				if h.inputs > 0 {
					h.step(WakeRead{Input: fmt.Sprint("i", rapid.IntRange(0, h.inputs-1).Draw(t, "which"))})
				}
			},
			"background": func(t *rapid.T) {
				h.s.Awaits = rapid.Bool().Draw(t, "awaits")
				h.step(BackgroundEnded{})
			},
			"dispatch": func(t *rapid.T) {
				if h.slot == "queued" {
					h.slot = "running"
					h.step(Dispatched{})
				}
			},
			"answer": func(t *rapid.T) {
				inference, attempt := h.attempt(t)
				h.answer = nil
				for i := range rapid.IntRange(0, 3).Draw(t, "calls") {
					h.answer = append(h.answer, Call{ID: fmt.Sprintf("c%d", i), Settled: rapid.Bool().Draw(t, "settled")})
				}
				h.step(Answered{inference, attempt, h.answer})
			},
			"fail": func(t *rapid.T) {
				inference, attempt := h.attempt(t)
				class := rapid.SampledFrom([]model.Class{model.Retryable, model.Fatal}).Draw(t, "class")
				h.step(Failed{Inference: inference, Attempt: attempt, Class: class, Words: "no"})
			},
			"lose": func(t *rapid.T) {
				inference, attempt := h.attempt(t)
				h.step(Lost{inference, attempt})
			},
			"tool": func(t *rapid.T) {
				id := h.callID(t)
				delete(h.live, id)
				h.step(ToolDone{h.s.Inference, id})
			},
			"wake": func(t *rapid.T) {
				h.now = h.now.Add(time.Duration(rapid.IntRange(0, 1000).Draw(t, "ms")) * time.Millisecond)
				h.step(Woke{})
			},
			"pause":     func(t *rapid.T) { h.step(Pause{}) },
			"resume":    func(t *rapid.T) { h.step(Resume{}) },
			"interrupt": func(t *rapid.T) { h.step(Interrupt{}) },
			"terminate": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "really") == 0 {
					h.step(Terminate{Code: 1, Cause: Killed})
				}
			},
		})
		h.finish()
	})
}

// finish lets everything run out: each process comes to rest with all its inputs ended.
func (h *host) finish() {
	h.s.Awaits = false
	h.step(Resume{})
	h.step(BackgroundEnded{})
	for range 200 {
		switch {
		case h.slot == "queued":
			h.slot = "running"
			h.step(Dispatched{})
		case h.s.Status == Running:
			h.answer = nil
			h.step(Answered{h.s.Inference, h.s.Attempt, nil})
		case len(h.live) > 0:
			for id := range h.live {
				delete(h.live, id)
				h.step(ToolDone{h.s.Inference, id})
				break
			}
		case h.s.Status == Blocked && h.s.Reason == OnProvider:
			h.now = time.UnixMilli(h.s.Until)
			h.step(Woke{})
		case h.s.Status == Blocked && (h.s.Reason == OnPause || h.s.Reason == Interrupted || h.s.Reason == OnCrashLoop):
			h.step(Resume{})
		case h.s.Status == Terminated, h.s.Status == Created, h.s.Reason == OnInput:
			if len(h.s.Inputs) > 0 && h.s.Status != Created {
				h.t.Fatalf("at rest with %d inputs", len(h.s.Inputs))
			}
			return
		}
	}
	h.t.Fatalf("never came to rest: %+v", h.s)
}
