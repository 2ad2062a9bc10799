package process_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"soma/internal/agent/model"
	"soma/message"
	"soma/wire"
)

// K-08: a slot is held while a stream runs and not while a cell does: with one slot, a second process is answered while the
// first one's cell waits for it; and never do more streams run than there are slots.
func TestSlotOnlyAroundTheStream(t *testing.T) {
	w := newWorld(t, map[string]string{
		"slow": "name: slow\nsteps: [{calls: [{python: 'import os, asyncio\nwhile not os.path.exists(\"go\"): await asyncio.sleep(0.01)'}]}, {say: end}]\n",
		"fast": "name: fast\nsteps: [{calls: [{python: 'open(\"go\", \"w\").close()'}]}, {say: end}]\n",
		"talk": "name: talk\nspeed: 1\nsteps: [{say: a b c, pace: 1ms}]\n",
	}, withPython, oneSlot)
	slow, fast := w.open("slow", "slow", false), w.open("fast", "fast", false)
	w.admit("slow", "a", "x")
	w.awaitState(slow, wire.Blocked, "tool result")
	w.admit("fast", "a", "x")
	w.ended(fast)
	w.ended(slow)
	for i := range 8 {
		s := fmt.Sprint("t", i)
		w.open(s, "talk", false)
		w.admit(s, "a", "x")
	}
	w.await("all", func() bool { return w.one(`select count(*) from process where ended_at is null`) == 0 })
	if w.stage.most != 1 {
		t.Errorf("%d streams at once", w.stage.most)
	}
}

// K-17: a process that becomes ready is dispatched at once. While nothing is ready no timer runs: the dispatch before is the last.
func TestDispatchIsQuick(t *testing.T) {
	w := newWorld(t, map[string]string{"m": "name: m\nsteps: [{say: hm}]\n"})
	pid := w.open("s", "m", true)
	var best time.Duration = time.Hour
	for i := range 20 {
		w.admit("s", fmt.Sprint(i), "x")
		w.awaitEvent("s", wire.TurnEnded, i+1, nil)
	}
	w.awaitState(pid, wire.Blocked, "waiting for input")
	var ready time.Time
	for _, e := range w.events {
		switch e.Kind {
		case wire.InputAdmitted:
			ready = e.At
		case wire.StepStarted:
			best = min(best, e.At.Sub(ready))
		}
	}
	if best > 20*time.Millisecond {
		t.Errorf("from ready to the dispatch's turn: %v", best)
	}
}

const priced = `
name: priced
steps:
  - error:
      - {attempts: [1], message: busy, status: 503, after_tokens: 2, retry_after: 1ms}
    say: this is the answer
    usage: {input: 1000, cache_read: 500, output: 100, reasoning: 40}
  - say: more
    usage: {input: 10, output: 1}
`

// K-23, K-24, K-32: each attempt has its ledger row, the failed ones too; their sums are those of the process's row; what a
// failed attempt showed is superseded and never joined to the next; money is whole nano-dollars; an unknown price is null.
func TestLedger(t *testing.T) {
	for name, c := range map[string]struct {
		vendor, model string
		known, free   bool
	}{
		"known":   {"openai", "gpt-4o-mini", true, false},
		"script":  {"script", "x", true, true},
		"unknown": {"example.org", "x", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, map[string]string{"m": priced})
			w.stage.names["m"] = [2]string{c.vendor, c.model}
			pid := w.open("s", "m", true)
			w.admit("s", "a", "x")
			w.awaitEvent("s", wire.TurnEnded, 1, nil)
			w.admit("s", "b", "y")
			w.awaitEvent("s", wire.TurnEnded, 2, nil)
			p, rows := w.process(pid), w.ledger(pid)
			if len(rows) != 3 || rows[0].Outcome != "failed" || rows[1].Outcome != "done" || rows[2].Outcome != "done" {
				t.Fatalf("ledger %+v", rows)
			}
			if rows[0].Step != 1 || rows[0].Attempt != 1 || rows[1].Attempt != 2 || rows[2].Step != 2 || rows[0].Usage.Output == 0 || !rows[0].Usage.Estimated {
				t.Errorf("ledger %+v", rows)
			}
			var tokens, cost int64
			for _, r := range rows {
				tokens += r.Usage.Total()
				switch {
				case (r.Cost != nil) != c.known:
					t.Errorf("cost of %+v", r)
				case r.Cost != nil:
					cost += *r.Cost
				}
			}
			if p.Tokens != tokens || p.Steps != 2 || !p.Estimated {
				t.Errorf("process %+v, ledger %d tokens", p, tokens)
			}
			switch {
			case (p.Cost != nil) != c.known, c.known && *p.Cost != cost, c.known && c.free != (cost == 0):
				t.Errorf("cost %v, ledger %d", p.Cost, cost)
			}
			ends := bodies[wire.TurnEndedEvent](w, "s", wire.TurnEnded)
			if ends[0].Tokens+ends[1].Tokens != tokens || !ends[0].Estimated {
				t.Errorf("turns %+v", ends)
			}
			failed := bodies[wire.StepFailedEvent](w, "s", wire.StepFailed)
			if len(failed) != 1 || !failed[0].Again || failed[0].Error != "busy (HTTP 503)" || failed[0].State == nil || failed[0].State.Reason != "provider delay" {
				t.Errorf("failures %+v", failed)
			}
			if got := w.told(pid); got != "user: x\nassistant: this is the answer\nuser: y\nassistant: more\n" {
				t.Errorf("transcript %q", got)
			}
		})
	}
}

// A provider that refuses for good ends the turn with its own words, and the process waits for the next input.
// K-32
func TestFatalRefusal(t *testing.T) {
	w := newWorld(t, map[string]string{"m": "name: m\nsteps: [{error: {class: fatal, message: 'no such key', status: 401}, say: x}, {say: y}]\n"})
	pid := w.open("s", "m", false)
	w.admit("s", "a", "x")
	p := w.awaitState(pid, wire.Blocked, "waiting for input")
	if p.Ended() {
		t.Errorf("process %+v", p)
	}
	end := bodies[wire.TurnEndedEvent](w, "s", wire.TurnEnded)
	if len(end) != 1 || end[0].Why != "failed" || !strings.Contains(end[0].Words, "no such key") {
		t.Errorf("ends %+v", end)
	}
	notes := bodies[wire.NoteEvent](w, "s", wire.NoteAdded)
	if len(notes) != 1 || notes[0].Message.Message.Role != message.Note || !strings.Contains(notes[0].Message.Message.Text, "no such key") {
		t.Errorf("notes %+v", notes)
	}
	if f := bodies[wire.StepFailedEvent](w, "s", wire.StepFailed); len(f) != 1 || f[0].Again {
		t.Errorf("failures %+v", f)
	}
}

// flood answers with as many calls and bytes of text as it is told.
type flood struct{ calls, bytes int }

func (f flood) Stream(context.Context, model.Request) (model.Stream, error) {
	return &flooding{flood: f}, nil
}

type flooding struct {
	flood
	sent, said int
	done       bool
}

func (f *flooding) Next(context.Context) (model.Event, error) {
	switch {
	case f.said < f.bytes:
		f.said += 64 << 10
		return model.Event{Kind: model.Token, Text: strings.Repeat("a", 64<<10)}, nil
	case f.sent < f.calls:
		f.sent++
		c := message.Call{ID: fmt.Sprintf("%064d", f.sent), Tool: "none", Arguments: json.RawMessage("{}")}
		return model.Event{Kind: model.ToolCall, Call: &c}, nil
	case !f.done:
		f.done = true
		return model.Event{Kind: model.Done, End: &model.End{Stop: model.StopEnd}}, nil
	}
	return model.Event{}, io.EOF
}

func (f *flooding) Usage() message.Usage { return message.Usage{Output: 1} }
func (f *flooding) Close() error         { return nil }

// An answer with more calls than are allowed, or longer than is kept, is the provider's failure and wedges nothing.
func TestAnswerBounds(t *testing.T) {
	for name, f := range map[string]flood{"calls": {calls: 129}, "text": {bytes: 9 << 20}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.stage.scripts["m"] = f
			pid := w.open("s", "m", true)
			w.admit("s", "a", "x")
			w.awaitState(pid, wire.Blocked, "waiting for input")
			if end := bodies[wire.TurnEndedEvent](w, "s", wire.TurnEnded); len(end) != 1 || end[0].Why != "failed" || !strings.Contains(end[0].Words, "128 calls") {
				t.Errorf("ends %+v", end)
			}
		})
	}
}

// K-11: arguments that are broken, doubled or cut, and tools that are not there, come back as error results in call order and
// never reach a python kernel; what goes back to the provider is valid.
func TestMalformedCalls(t *testing.T) {
	w := newWorld(t, map[string]string{"m": `
name: m
steps:
  - calls:
      - {tool: python, arguments: '{"code": "1+'}
      - {tool: python, arguments: '{"code": "1"}{"code": "2"}'}
      - {tool: python, arguments: ''}
      - {tool: python, arguments: '{"code": 7}'}
      - {tool: shell, arguments: '{"command": "ls"}'}
      - {tool: python, arguments: '["x"]'}
  - say: '{{range .Results}}{{.Status}} {{end}}'
`})
	pid := w.open("s", "m", false)
	w.admit("s", "a", "x")
	w.ended(pid)
	h := w.history(pid)
	if len(h) != 9 || h[8].Text != "error error error error error error " {
		t.Fatalf("history %+v", h)
	}
	for i, words := range []string{"break off", "more than one JSON value", "missing", "schema", `no tool "shell"`, "must be a JSON object"} {
		if m := h[2+i]; m.Status != message.Error || !strings.Contains(m.Text, words) {
			t.Errorf("result %d: %s", i, m.Text)
		}
	}
	if n := w.one(`select count(*) from cell`) + w.one(`select count(*) from kernel`); n != 0 {
		t.Errorf("%d cells and kernels", n)
	}
	if n := w.one(`select count(*) from tool_call where state = 'ended' and status = 'error'`); n != 6 {
		t.Errorf("%d calls ended", n)
	}
	if r := bodies[wire.ToolResultEvent](w, "s", wire.ToolResult); len(r) != 6 || r[4].Tool != "shell" || r[4].Position != 4 {
		t.Errorf("results %+v", r)
	}
}

// K-23: the sums of a process that its session's other processes do not share start at zero.
func TestSumsStartAtZero(t *testing.T) {
	w := newWorld(t, map[string]string{"m": priced})
	first := w.open("s", "m", false)
	w.admit("s", "a", "x")
	w.ended(first)
	st := w.admit("s", "b", "y")
	p := w.ended(st.PID)
	if p.Steps != 1 || p.Tokens != 11 || *p.Cost != 0 {
		t.Errorf("process %+v", p)
	}
	if len(w.ledger(p.PID)) != 1 {
		t.Error("ledger of another process")
	}
}
