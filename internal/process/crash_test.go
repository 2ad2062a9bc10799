package process_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"soma/internal/neuron"
	"soma/internal/process"
	"soma/message"
	"soma/wire"
)

// kill ends the parts as a kill of the daemon does: from one commit to the next nothing more is committed. Then new ones start.
func (w *world) kill() {
	w.t.Helper()
	w.cut(0)
	w.restart()
}

// K-04, K-32: after a crash a process that was running is told of as interrupted in its transcript and goes on by itself; the
// third crash without progress blocks it as a crash loop; resumed, it goes on. Lost attempts have estimated ledger rows.
func TestCrashLoop(t *testing.T) {
	w := newWorld(t, map[string]string{"m": "name: m\nsteps: [{say: hm, usage: {input: 1, output: 1}}]\n"})
	release := w.stage.hold("m")
	pid := w.open("s", "m", false)
	w.admit("s", "a", "x")
	for attempt := 1; attempt <= 3; attempt++ {
		w.await("a stream", func() bool { return len(w.stage.requests()) == attempt })
		if r := w.stage.requests()[attempt-1]; r.attempt != attempt || len(r.messages) != attempt {
			t.Errorf("request %+v", r)
		}
		w.kill()
	}
	p := w.awaitState(pid, wire.Blocked, "crash loop")
	if p.Detail != "3 crashes without progress" {
		t.Errorf("state %+v", p.State)
	}
	w.restart()
	w.admit("s", "b", "y") // it waits
	if n := len(w.stage.requests()); n != 3 {
		t.Errorf("%d requests", n)
	}
	release()
	w.signal(pid, wire.Resume)
	w.ended(pid)
	if got := w.told(pid); got != "user: x\nuser: y\nassistant: hm\n" {
		t.Errorf("transcript %q", got)
	}
	notes := 0
	for _, m := range w.history(pid) {
		if m.Role == message.Note && strings.Contains(m.Text, "the daemon ended while inference 1") {
			notes++
		}
	}
	if notes != 3 {
		t.Errorf("%d notes", notes)
	}
	rows := w.ledger(pid)
	if len(rows) != 4 {
		t.Fatalf("ledger %+v", rows)
	}
	for i, r := range rows[:3] {
		if r.Outcome != "lost" || r.Attempt != i+1 || r.Step != 1 || !r.Usage.Estimated || r.Usage.Output == 0 || r.Cost == nil {
			t.Errorf("row %+v", r)
		}
	}
	if r := rows[3]; r.Outcome != "done" || r.Attempt != 4 || r.Usage.Estimated {
		t.Errorf("row %+v", r)
	}
	again := 0
	for _, f := range bodies[wire.StepFailedEvent](w, "s", wire.StepFailed) {
		if f.Class == "lost" && f.Again {
			again++
		}
	}
	if again != 3 {
		t.Errorf("%d lost attempts told of", again)
	}
}

// K-04: with hold a process that a crash interrupted stays blocked until it is resumed, and a daemon without hold lets later
// ones go on.
func TestHold(t *testing.T) {
	hold := true
	w := newWorld(t, map[string]string{"m": "name: m\nsteps: [{say: hm}]\n"}, withHost(func(o *process.Options) { o.Hold = hold }))
	release := w.stage.hold("m")
	pid := w.open("s", "m", false)
	w.admit("s", "a", "x")
	w.await("a stream", func() bool { return len(w.stage.requests()) == 1 })
	w.kill()
	w.awaitState(pid, wire.Blocked, "interrupted")
	w.restart()
	w.awaitState(pid, wire.Blocked, "interrupted")
	if n := len(w.stage.requests()); n != 1 {
		t.Errorf("%d requests", n)
	}
	w.signal(pid, wire.Resume)
	w.await("a stream", func() bool { return len(w.stage.requests()) == 2 })
	hold = false
	w.kill()
	w.await("a stream", func() bool { return len(w.stage.requests()) == 3 })
	release()
	w.ended(pid)
}

// A complete answer whose commit a kill prevented is taken from its spool: the provider is asked once.
// K-32, M-05
func TestSpooledAnswer(t *testing.T) {
	w := newWorld(t, map[string]string{"m": "name: m\nsteps: [{say: the answer, usage: {input: 7, output: 3}}]\n"})
	release := w.stage.hold("m")
	pid := w.open("s", "m", false)
	w.admit("s", "a", "x")
	w.await("a stream", func() bool { return len(w.stage.requests()) == 1 })
	w.cut(0)
	release()
	w.await("the cut", func() bool { return w.dead })
	w.restart()
	w.ended(pid)
	if n := len(w.stage.requests()); n != 1 {
		t.Errorf("%d requests", n)
	}
	if rows := w.ledger(pid); len(rows) != 1 || rows[0].Outcome != "done" || rows[0].Attempt != 1 || rows[0].Usage != (message.Usage{Input: 7, Output: 3}) {
		t.Errorf("ledger %+v", rows)
	}
	if got := w.told(pid); got != "user: x\nassistant: the answer\n" {
		t.Errorf("transcript %q", got)
	}
}

// An input that was answered survives a kill right after, also where the session had to spawn a process for it.
// K-14
func TestAdmittedInputSurvives(t *testing.T) {
	w := newWorld(t, map[string]string{"m": "name: m\nsteps: [{say: one}, {say: two}]\n"})
	pid := w.open("s", "m", false)
	w.admit("s", "a", "x")
	w.ended(pid)
	w.cut(1) // the session's turn is the last that is committed
	st := w.admit("s", "b", "y")
	w.await("the cut", func() bool { return w.dead })
	if _, err := w.host.Admit(t.Context(), "s", "c", wire.Input{Text: "z"}); !errors.Is(err, neuron.ErrStoreFailed) {
		t.Errorf("an input without a store: %v", err)
	}
	w.restart()
	if again := w.admit("s", "b", "y"); again.PID != st.PID {
		t.Errorf("input %+v, was %+v", again, st)
	}
	w.ended(st.PID)
	if got := w.told(st.PID); got != "user: x\nassistant: one\nuser: y\nassistant: two\n" {
		t.Errorf("transcript %q", got)
	}
}

// wild makes a script of some steps with calls of all kinds.
func wild(r *rand.Rand) string {
	calls := []string{
		`python: '1 + 1'`,
		`python: 'import asyncio; await asyncio.sleep(0.05)'`,
		`python: '1 / 0'`,
		`python: 'import asyncio; await asyncio.sleep(30)', timeout_ms: 80`,
		`tool: python, arguments: '{"code'`,
		`tool: none, arguments: {}`,
		`python: 'import os; os._exit(1)'`,
	}
	var b strings.Builder
	b.WriteString("name: wild\npace: 5ms\nsteps:\n")
	for range 2 + r.IntN(3) {
		b.WriteString("  - say: some words to stream\n")
		if r.IntN(4) == 0 {
			b.WriteString("    error: {attempts: [1], message: busy, status: 503, after_tokens: 2, retry_after: 5ms}\n")
		}
		if n := r.IntN(5); n > 0 {
			b.WriteString("    calls:\n")
			for range n {
				fmt.Fprintf(&b, "      - {%s}\n", calls[r.IntN(len(calls))])
			}
		}
	}
	return b.String()
}

// K-09, K-14, K-50: whatever is interrupted, paused, killed, retried or comes at the same time, every request and the history
// at the end are paired, each input is delivered or cancelled once, the ledger's sums are the process's, and events have no gap.
func TestPairedWhateverHappens(t *testing.T) {
	rounds := 10
	if testing.Short() {
		rounds = 3
	}
	for seed := range rounds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(seed), 1))
			text := wild(r)
			w := newWorld(t, map[string]string{"m": text}, withPython)
			pid := w.open("s", "m", true)
			inputs := 0
			send := func() {
				inputs++
				in := wire.Input{Text: "go", Mode: []string{wire.Steer, wire.After}[r.IntN(2)]}
				for id := fmt.Sprint("i", inputs); ; w.restart() { // a client that repeats until it is answered
					if _, err := w.host.Admit(t.Context(), "s", id, in); err == nil {
						return
					}
				}
			}
			signal := func(name string) {
				_, err := w.host.Signal(t.Context(), pid, fmt.Sprint(name, signals.Add(1)), wire.Signal{Signal: name})
				if err != nil && !errors.Is(err, neuron.ErrStoreFailed) {
					t.Error(err)
				}
			}
			for range 12 {
				n := len(w.seen())
				switch r.IntN(7) {
				case 0, 1:
					send()
				case 2:
					signal(wire.Interrupt)
				case 3:
					signal([]string{wire.Pause, wire.Resume}[r.IntN(2)])
				case 4:
					w.cut(int64(r.IntN(5)))
				case 5:
					w.restart()
				}
				steps := 1 + r.IntN(4)
				w.await("something", func() bool {
					p := w.process(pid)
					return w.dead || len(w.events) >= n+steps || p.State.State == wire.Blocked && p.Reason != "tool result" && p.Reason != "provider delay" || p.State.State == wire.Created
				})
				if w.gone() {
					w.restart()
				}
			}
			w.cut(never)
			if w.gone() {
				w.restart()
			}
			w.await("quiet", func() bool {
				p := w.process(pid)
				return p.State.State == wire.Created || p.State.State == wire.Blocked && p.Reason != "tool result" && p.Reason != "provider delay"
			})
			signal(wire.Resume)
			w.await("the end of all", func() bool {
				p := w.process(pid)
				return p.State.State == wire.Created || p.State.State == wire.Blocked && p.Reason == "waiting for input" &&
					w.one(`select count(*) from cell where state = 'started'`) == 0 && w.one(`select count(*) from execution`) == 0
			})
			h := w.history(pid)
			users := 0
			for _, m := range h {
				if m.Role == message.User {
					users++
				}
			}
			delivered, cancelled := w.one(`select count(*) from input where state = 'delivered'`), w.one(`select count(*) from input where state = 'cancelled'`)
			if int(delivered) != users || int(delivered+cancelled) != inputs {
				t.Errorf("%d inputs: %d delivered, %d cancelled, %d in the history", inputs, delivered, cancelled, users)
			}
			var tokens int64
			for _, row := range w.ledger(pid) {
				tokens += row.Usage.Total()
			}
			if p := w.process(pid); p.Tokens != tokens || int64(w.one(`select count(*) from cell`)) != p.Cells {
				t.Errorf("process %+v, ledger %d tokens", p, tokens)
			}
			if a, b := w.one(`select count(*) from event`), w.one(`select max(seq) from event`); a != b {
				t.Errorf("%d events up to %d", a, b)
			}
			if n := w.one(`select count(*) from dead_letter`) + w.one(`select count(*) from tool_call where state <> 'ended'`); n != 0 {
				t.Errorf("%d dead letters and open calls", n)
			}
			if t.Failed() {
				t.Log(text)
			}
		})
	}
}

func (w *world) gone() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dead
}

func (w *world) seen() []wire.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.events[:len(w.events):len(w.events)]
}
