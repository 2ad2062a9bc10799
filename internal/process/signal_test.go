package process_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"soma/internal/process"
	"soma/message"
	"soma/wire"
)

// moody asks for a minute of patience where the input is "fail".
const moody = `
name: moody
steps:
  - if: '{{eq .Input "fail"}}'
    error: {attempts: [1], message: slow down, status: 429, retry_after: 60s}
    say: never
  - say: hm
  - say: hm
`

var oneSlot = withHost(func(o *process.Options) { o.MaxConcurrent = 1 })

// K-56: each signal in each state a process can stand in.
func TestSignals(t *testing.T) {
	type outcome struct{ state, reason string }
	states := map[string]struct {
		reach func(w *world, pid uint64)
		after map[string]outcome // by signal
	}{
		"created": {func(w *world, pid uint64) {}, map[string]outcome{
			wire.Pause: {wire.Created, ""}, wire.Resume: {wire.Created, ""}, wire.Interrupt: {wire.Created, ""}, wire.Terminate: {wire.Terminated, "killed"},
		}},
		"ready": {func(w *world, pid uint64) { // the only slot is taken
			w.open("other", "m", true)
			w.admit("other", "a", "x")
			w.await("a stream", func() bool { return len(w.stage.requests()) == 1 })
			w.admit("s", "a", "x")
			w.awaitState(pid, wire.Ready, "")
		}, map[string]outcome{
			wire.Pause: {wire.Blocked, "paused"}, wire.Resume: {wire.Ready, ""}, wire.Interrupt: {wire.Blocked, "waiting for input"}, wire.Terminate: {wire.Terminated, "killed"},
		}},
		"running": {func(w *world, pid uint64) {
			w.admit("s", "a", "x")
			w.await("a stream", func() bool { return len(w.stage.requests()) == 1 })
		}, map[string]outcome{
			wire.Pause: {wire.Running, ""}, wire.Resume: {wire.Running, ""}, wire.Interrupt: {wire.Blocked, "waiting for input"}, wire.Terminate: {wire.Terminated, "killed"},
		}},
		"waiting": {func(w *world, pid uint64) {
			w.stage.hold("m")()
			w.admit("s", "a", "x")
			w.awaitState(pid, wire.Blocked, "waiting for input")
		}, map[string]outcome{
			wire.Pause: {wire.Blocked, "paused"}, wire.Resume: {wire.Blocked, "waiting for input"}, wire.Interrupt: {wire.Blocked, "waiting for input"}, wire.Terminate: {wire.Terminated, "killed"},
		}},
		"paused": {func(w *world, pid uint64) {
			w.stage.hold("m")()
			w.admit("s", "a", "x")
			w.awaitState(pid, wire.Blocked, "waiting for input")
			w.signal(pid, wire.Pause)
		}, map[string]outcome{
			wire.Pause: {wire.Blocked, "paused"}, wire.Resume: {wire.Blocked, "waiting for input"}, wire.Interrupt: {wire.Blocked, "paused"}, wire.Terminate: {wire.Terminated, "killed"},
		}},
		"provider delay": {func(w *world, pid uint64) {
			w.stage.hold("m")()
			w.admit("s", "a", "fail")
			w.awaitState(pid, wire.Blocked, "provider delay")
		}, map[string]outcome{
			wire.Pause: {wire.Blocked, "paused"}, wire.Resume: {wire.Blocked, "provider delay"}, wire.Interrupt: {wire.Blocked, "waiting for input"}, wire.Terminate: {wire.Terminated, "killed"},
		}},
	}
	for name, c := range states {
		for signal, want := range c.after {
			t.Run(name+"/"+signal, func(t *testing.T) {
				w := newWorld(t, map[string]string{"m": moody}, oneSlot)
				w.stage.hold("m")
				pid := w.open("s", "m", true)
				c.reach(w, pid)
				if p := w.signal(pid, signal); p.State.State != want.state || p.Reason != want.reason {
					t.Errorf("state %+v, want %v", p.State, want)
				}
				w.history(pid)
				if signal == wire.Terminate && (w.process(pid).ExitCode == nil || *w.process(pid).ExitCode == 0) {
					t.Errorf("terminated with %+v", w.process(pid))
				}
				if _, err := w.host.Signal(t.Context(), pid, "x", wire.Signal{Signal: "jump"}); code(err) != wire.BadRequest {
					t.Errorf("an unknown signal: %v", err)
				}
			})
		}
	}
}

// K-56: Pause lets the running inference end, inputs queue, Resume goes on; a signal overtakes queued mail.
func TestPauseAndResume(t *testing.T) {
	w := newWorld(t, map[string]string{"m": "name: m\nsteps: [{calls: [{tool: none, arguments: {}}]}, {say: end}]\n"})
	release := w.stage.hold("m")
	pid := w.open("s", "m", false)
	w.admit("s", "a", "x")
	w.await("a stream", func() bool { return len(w.stage.requests()) == 1 })
	w.signal(pid, wire.Pause)
	w.admit("s", "b", "y")
	release()
	p := w.awaitState(pid, wire.Blocked, "paused")
	if p.Inputs != 1 || len(w.stage.requests()) != 1 {
		t.Errorf("%d inputs wait, %d requests", p.Inputs, len(w.stage.requests()))
	}
	w.restart() // it stays paused
	w.awaitState(pid, wire.Blocked, "paused")
	w.signal(pid, wire.Resume)
	w.ended(pid)
	if got := w.told(pid); !strings.HasSuffix(got, "user: y\nassistant: end\n") || strings.Count(got, "user") != 2 {
		t.Errorf("transcript %q", got)
	}
}

// The same signal under the same id counts once.
// K-56, I-21
func TestRepeatedSignal(t *testing.T) {
	w := newWorld(t, map[string]string{"m": moody})
	pid := w.open("s", "m", true)
	w.admit("s", "a", "x")
	w.awaitState(pid, wire.Blocked, "waiting for input")
	for range 2 {
		if _, err := w.host.Signal(t.Context(), pid, "p", wire.Signal{Signal: wire.Pause}); err != nil {
			t.Fatal(err)
		}
	}
	w.signal(pid, wire.Resume)
	p, err := w.host.Signal(t.Context(), pid, "p", wire.Signal{Signal: wire.Pause})
	w.must(err)
	if p.Reason != "waiting for input" {
		t.Errorf("a repeated pause paused again: %+v", p.State)
	}
}

// What a signal is answered with is what is committed, whatever has happened since the signal before it.
// K-56
func TestSignalShowsWhatIsCommitted(t *testing.T) {
	w := newWorld(t, map[string]string{"m": moody})
	pid := w.open("s", "m", true)
	same := func(when, signal string) {
		t.Helper()
		for range 2 {
			if p, now := w.signal(pid, signal), w.process(pid); !reflect.DeepEqual(p, now) {
				t.Errorf("%s: answered %+v, committed %+v", when, p, now)
			}
		}
	}
	same("created", wire.Resume)
	w.admit("s", "a", "x")
	w.awaitState(pid, wire.Blocked, "waiting for input")
	same("after an answer", wire.Resume)
	same("paused", wire.Pause)
	w.admit("s", "b", "y")
	same("with an input that waits", wire.Pause)
	if p := w.process(pid); p.Inputs != 1 {
		t.Fatalf("%d inputs wait", p.Inputs)
	}
	w.admit("s", "c", "z")
	same("with one more", wire.Pause)
	same("ended", wire.Terminate)
	if _, err := w.host.Signal(t.Context(), pid, "late", wire.Signal{Signal: wire.Pause}); code(err) != wire.ProcessEnded {
		t.Errorf("a signal after the end: %v", err)
	}
	next := w.admit("s", "d", "again").PID
	w.awaitState(next, wire.Blocked, "waiting for input")
	pid = next
	same("the session's next process", wire.Pause)
	if _, err := w.host.Signal(t.Context(), 1<<40, "x", wire.Signal{Signal: wire.Pause}); code(err) != wire.NotFound {
		t.Errorf("a signal to nobody: %v", err)
	}
}

// K-12, K-32: an interrupt closes the stream at once; what it showed is told of as superseded, its tokens are counted once it
// is closed, and nothing of it joins the branch. Inputs that wait are cancelled; the process lives on.
func TestInterruptStream(t *testing.T) {
	w := newWorld(t, map[string]string{"m": "name: m\npace: 1h\nsteps: [{say: one two three}, {say: never}]\n"})
	pid := w.open("s", "m", true)
	w.admit("s", "a", "x")
	w.await("a token", func() bool { return len(w.live) > 0 })
	w.admit("s", "b", "y")
	if texts := w.host.LiveTexts("s"); len(texts) != 1 || texts[0].Offset != 0 || texts[0].Text != "one" && texts[0].Text != "one " || texts[0].PID != pid {
		t.Errorf("who joins late sees %+v", texts)
	}
	began := time.Now()
	p := w.signal(pid, wire.Interrupt)
	if p.State.State != wire.Blocked || p.Reason != "waiting for input" || p.Inputs != 0 {
		t.Errorf("process %+v", p)
	}
	w.await("the end of the stream", func() bool { return w.stage.streaming() == 0 })
	if d := time.Since(began); d > time.Second {
		t.Errorf("it took %v", d)
	}
	w.await("its ledger row", func() bool {
		return w.one(`select count(*) from ledger where outcome = 'cancelled' and input > 0 and output > 0`) == 1
	})
	if texts := w.host.LiveTexts("s"); len(texts) != 0 {
		t.Errorf("who joins late still sees %+v", texts)
	}
	failed := bodies[wire.StepFailedEvent](w, "s", wire.StepFailed)
	if len(failed) != 1 || failed[0].Step != 1 || failed[0].Attempt != 1 || failed[0].Again || failed[0].Class != "cancelled" {
		t.Errorf("told of as %+v", failed)
	}
	if got := w.told(pid); got != "user: x\n" {
		t.Errorf("transcript %q", got)
	}
	if end := bodies[wire.TurnEndedEvent](w, "s", wire.TurnEnded); len(end) != 1 || end[0].Why != "interrupted" {
		t.Errorf("ends %+v", end)
	}
	if in := bodies[wire.InputEvent](w, "s", wire.InputEnded); len(in) != 1 || in[0].ClientID != "b" || in[0].State != "cancelled" {
		t.Errorf("inputs %+v", in)
	}
	w.admit("s", "c", "again")
	w.awaitState(pid, wire.Running, "")
	if rows := w.ledger(pid); len(rows) != 1 || rows[0].Step != 1 {
		t.Errorf("ledger %+v", rows)
	}
}

// K-09, K-12: an interrupt while cells run answers at once, closes the history with cancelled results in call order, and what
// the cells still bring changes nothing but their own rows.
func TestInterruptCells(t *testing.T) {
	w := newWorld(t, map[string]string{"m": `
name: m
steps:
  - calls:
      - python: "import asyncio; await asyncio.sleep(600)"
      - python: "2 + 2"
      - python: "import time\nwhile True: time.sleep(0.01)"
  - say: 'then {{len .Results}}'
`}, withPython)
	pid := w.open("s", "m", true)
	w.admit("s", "a", "x")
	var done wire.ToolResultEvent
	w.awaitEvent("s", wire.ToolResult, 1, &done)
	if done.Position != 1 || done.Value == nil || *done.Value != "4" {
		t.Fatalf("result %+v", done)
	}
	began := time.Now()
	if p := w.signal(pid, wire.Interrupt); p.Reason != "waiting for input" {
		t.Errorf("state %+v", p.State)
	}
	if d := time.Since(began); d > time.Second {
		t.Errorf("it took %v", d)
	}
	h := w.history(pid)
	if len(h) != 5 || h[2].Status != message.Cancelled || h[3].Status != message.OK || h[4].Status != message.Cancelled {
		t.Fatalf("history %+v", h)
	}
	for i, r := range bodies[wire.ToolResultEvent](w, "s", wire.ToolResult)[1:] {
		if r.Position != []int{0, 2}[i] || r.Status != "cancelled" || r.Step != 1 {
			t.Errorf("result %+v", r)
		}
	}
	w.await("the cells' ends", func() bool {
		return w.one(`select count(*) from cell where state = 'ended' and status = 'interrupted'`) == 2
	})
	w.admit("s", "b", "go on")
	w.awaitEvent("s", wire.StepEnded, 2, nil)
	if h := w.history(pid); len(h) != 7 || h[6].Text != "then 3" {
		t.Errorf("history %+v", h)
	}
}
