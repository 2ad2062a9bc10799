package process_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/process"
	"soma/wire"
)

const greet = `
name: greet
steps:
  - say: 'You said {{.Input}}.'
  - say: 'And then {{index .Inputs 1}}.'
  - say: 'Third {{len .Inputs}}.'
`

// M-01, M-05, K-03, K-07: an input goes through one dispatch and one answer, and a process that runs to its end ends with 0.
func TestOneInput(t *testing.T) {
	w := newWorld(t, map[string]string{"greet": greet})
	pid := w.open("s", "greet", false)
	st := w.admit("s", "i1", "hello")
	if st.PID != pid || st.ClientID != "i1" || st.Mode != wire.Steer {
		t.Errorf("input %+v", st)
	}
	p := w.ended(pid)
	if p.ExitCode == nil || *p.ExitCode != 0 || p.Reason != "finished" || p.Steps != 1 || p.Cells != 0 {
		t.Errorf("process %+v", p)
	}
	if got := w.told(pid); got != "user: hello\nassistant: You said hello.\n" {
		t.Errorf("transcript %q", got)
	}
	var kinds []string
	for _, e := range w.events {
		kinds = append(kinds, e.Kind)
	}
	want := "session.opened process.spawned input.admitted process.state step.started step.ended turn.ended process.ended"
	if got := strings.Join(kinds, " "); got != want {
		t.Errorf("events %s", got)
	}
}

// K-14: what is sent while an inference streams joins before the next provider call, a follow-up after the turn, and the first
// input opens a turn whatever its kind. Each ends delivered; a repeated PUT changes nothing and answers the same.
func TestSteerAndFollow(t *testing.T) {
	w := newWorld(t, map[string]string{"m": `
name: m
steps:
  - say: one
  - say: two
  - say: three
`})
	release := w.stage.hold("m")
	pid := w.open("s", "m", false)
	first := w.follow("s", "a", "start")
	w.await("a stream", func() bool { return len(w.stage.requests()) == 1 })
	after := w.follow("s", "c", "later")
	steer := w.admit("s", "b", "now")
	if st := w.process(pid); st.Inputs != 2 {
		t.Errorf("%d inputs wait", st.Inputs)
	}
	for range 3 {
		for id, was := range map[string]wire.InputState{"a": first, "b": steer, "c": after} {
			in := wire.Input{Text: map[string]string{"a": "start", "b": "now", "c": "later"}[id], Mode: was.Mode}
			again, err := w.host.Admit(t.Context(), "s", id, in)
			w.must(err)
			if was.State, again.State = "", ""; again != was {
				t.Errorf("input %s again: %+v, was %+v", id, again, was)
			}
		}
	}
	release()
	w.ended(pid)
	want := "user: start\nassistant: one\nuser: now\nassistant: two\nuser: later\nassistant: three\n"
	if got := w.told(pid); got != want {
		t.Errorf("transcript %q", got)
	}
	if got := len(bodies[wire.TurnEndedEvent](w, "s", wire.TurnEnded)); got != 2 {
		t.Errorf("%d turns", got)
	}
	if n := w.one(`select count(*) from input where state = 'delivered' and ended_at is not null`); n != 3 {
		t.Errorf("%d inputs delivered", n)
	}
	if n := w.count("s", wire.InputAdmitted); n != 3 {
		t.Errorf("%d admissions", n)
	}
}

// K-07b, K-07c: a turn of several inferences has one start and one end, each slice one dispatch.
func TestEventsOnceATurn(t *testing.T) {
	w := newWorld(t, map[string]string{"m": `
name: m
steps:
  - calls: [{tool: nothing, arguments: {}}]
  - calls: [{tool: nothing, arguments: {}}]
  - say: done
  - say: again
`})
	pid := w.open("s", "m", true)
	for i := range 2 {
		w.admit("s", fmt.Sprint(i), "go")
		w.awaitEvent("s", wire.TurnEnded, i+1, nil)
	}
	w.awaitState(pid, wire.Blocked, "waiting for input")
	begins := 0
	for _, e := range bodies[wire.StepStartedEvent](w, "s", wire.StepStarted) {
		if e.Turn {
			begins++
		}
	}
	ends := bodies[wire.TurnEndedEvent](w, "s", wire.TurnEnded)
	if begins != 2 || len(ends) != 2 || ends[0].Steps != 3 || ends[1].Steps != 1 || ends[0].Why != "done" {
		t.Errorf("%d beginnings, ends %+v", begins, ends)
	}
	if n := w.one(`select count(*) from turn where cast(incoming as text) like '%agent.dispatch.v1%'`); n != 4 {
		t.Errorf("%d dispatches", n)
	}
}

// I-21: the same request under the same id answers the same, another one under it is a conflict.
func TestRepeatedRequests(t *testing.T) {
	w := newWorld(t, map[string]string{"m": greet})
	open := wire.OpenSession{Workspace: w.folder, Model: "m", Keep: true}
	s, err := w.host.Open(t.Context(), "s", open)
	w.must(err)
	w.admit("s", "i", "x")
	w.awaitState(s.PID, wire.Blocked, "waiting for input")
	w.restart()
	again, err := w.host.Open(t.Context(), "s", open)
	w.must(err)
	if again.PID != s.PID || again.CreatedAt != s.CreatedAt {
		t.Errorf("session %+v, was %+v", again, s)
	}
	open.Keep = false
	if _, err := w.host.Open(t.Context(), "s", open); code(err) != wire.Conflict {
		t.Errorf("another session under the id: %v", err)
	}
	if _, err := w.host.Admit(t.Context(), "s", "i", wire.Input{Text: "y"}); code(err) != wire.Conflict {
		t.Errorf("another input under the id: %v", err)
	}
	if _, err := w.host.Admit(t.Context(), "s", "i", wire.Input{Text: "x", Mode: wire.After}); code(err) != wire.Conflict {
		t.Errorf("another mode under the id: %v", err)
	}
	if n := w.one(`select count(*) from process`); n != 1 {
		t.Errorf("%d processes", n)
	}
	for name, err := range map[string]error{
		"no session": errorOf(w.host.Admit(t.Context(), "none", "i", wire.Input{Text: "x"})),
		"no process": errorOf(w.host.Process(t.Context(), 99)),
		"no input":   errorOf(w.host.Input(t.Context(), "s", "none")),
		"no cell":    errorOf(w.host.Cell(t.Context(), "none")),
		"no stream":  func() error { _, _, _, err := w.host.Events(t.Context(), "none", 0, 1); return err }(),
	} {
		if code(err) != wire.NotFound {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, req := range map[string]wire.OpenSession{
		"kind":  {Kind: "x", Workspace: w.folder, Model: "m"},
		"path":  {Workspace: "here", Model: "m"},
		"agent": {Workspace: w.folder, Model: "m", Agent: strings.Repeat("a", 129)},
	} {
		if _, err := w.host.Open(t.Context(), "x", req); code(err) != wire.BadRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, want := range map[string]wire.Code{"none": wire.NoModel} {
		if _, err := w.host.Open(t.Context(), "x", wire.OpenSession{Workspace: w.folder, Model: name}); code(err) != want {
			t.Errorf("model %s: %v", name, err)
		}
	}
}

func errorOf[T any](_ T, err error) error { return err }

// Many clients send the same and other inputs at once, to a process that ends all the time: each is delivered once.
// K-14, K-55
func TestInputsWhileProcessesEnd(t *testing.T) {
	w := newWorld(t, map[string]string{"m": "name: m\nsteps: [{say: hm}]\n"})
	w.open("s", "m", false)
	const clients, each = 3, 15
	const inputs = clients * each
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for i := range each {
				id := fmt.Sprint(c, "-", i)
				var twice sync.WaitGroup
				for range 2 {
					twice.Go(func() {
						if _, err := w.host.Admit(t.Context(), "s", id, wire.Input{Text: id}); err != nil {
							t.Error(err)
						}
					})
				}
				twice.Wait()
				w.await("delivery of "+id, func() bool {
					return w.one(`select count(*) from input where client_id = ? and state = 'delivered'`, id) == 1
				})
			}
		})
	}
	wg.Wait()
	w.await("the end of all", func() bool {
		return w.one(`select count(*) from input where state = 'delivered'`) == inputs && w.one(`select count(*) from process where ended_at is null`) == 0
	})
	if n := w.one(`select count(*) from message where role = 'user'`); n != inputs {
		t.Errorf("%d messages of %d inputs", n, inputs)
	}
	if n := w.one(`select count(*) from process`); n < 2 {
		t.Errorf("%d processes", n)
	}
	// M-01: one after the other, all on the session's branch.
	if n := w.one(`select count(distinct branch) from process`); n != 1 {
		t.Errorf("%d branches", n)
	}
	// Rule 1: all neurons of a session have its place.
	if len(w.places) != 1 || !w.places[neuron.PlaceOf("s")] {
		t.Errorf("places %v", w.places)
	}
}

// insertInput writes the row of an input that waits for a process.
type insertInput struct{ pid uint64 }

func (*insertInput) SQL() string {
	return `insert into input (session, client_id, id, pid, mode, state, text, at) values ('s', 'late', x'00', ?, 'steer', 'admitted', 'late', 1)`
}

func (o *insertInput) Args() []any { return []any{int64(o.pid)} }

// K-14: an input that the session sent on to a process which ended before it came goes back, and the next process takes it; in
// a session that was closed meanwhile it is cancelled.
func TestReturnedInput(t *testing.T) {
	for _, closed := range []bool{false, true} {
		t.Run(fmt.Sprint("closed ", closed), func(t *testing.T) {
			w := newWorld(t, map[string]string{"m": greet})
			pid := w.open("s", "m", false)
			w.admit("s", "a", "x")
			w.ended(pid)
			if closed {
				_, err := w.host.Close(t.Context(), "s")
				w.must(err)
			}
			w.must(w.engine.Write(t.Context(), neuron.PlaceOf("s"), &insertInput{pid}))
			id := ident.New(now())
			w.must(w.engine.Deliver(t.Context(), neuron.Delivery{
				ID: id, Alias: "agent.admit.v1", Target: neuron.ID{Owner: "me", Kind: process.ProcessKind, Key: fmt.Sprint(pid)}, Correlation: id, At: now(),
				Payload: json.RawMessage(`{"session":"s","client_id":"late","mode":"steer","stored":true,"spare":900}`),
			}))
			if closed {
				w.awaitEvent("s", wire.InputEnded, 1, nil)
				if n := w.one(`select count(*) from input where state = 'cancelled'`) + 10*w.one(`select count(*) from process`); n != 11 {
					t.Errorf("inputs and processes: %d", n)
				}
				return
			}
			w.await("process 900", func() bool {
				return w.one(`select count(*) from process where pid = 900 and ended_at is not null`) == 1
			})
			if got := w.told(900); !strings.HasSuffix(got, "user: late\nassistant: And then late.\n") {
				t.Errorf("transcript %q", got)
			}
			if n := w.one(`select count(*) from input where client_id = 'late' and pid = 900 and state = 'delivered'`); n != 1 {
				t.Error("the input's row does not say so")
			}
		})
	}
}

// What a new process finds waiting in its rows it takes, whatever delivery is its first.
// K-14
func TestWaitingInputIsFound(t *testing.T) {
	w := newWorld(t, map[string]string{"m": greet})
	pid := w.open("s", "m", false)
	w.must(w.engine.Write(t.Context(), neuron.PlaceOf("s"), &insertInput{pid}))
	w.admit("s", "a", "x")
	w.ended(pid)
	if got := w.told(pid); !strings.HasPrefix(got, "user: late\nuser: x\n") && !strings.HasPrefix(got, "user: late\nassistant: You said late.\nuser: x\n") {
		t.Errorf("transcript %q", got)
	}
}

// K-55: a pid is never given twice, whatever ends and starts; an ended process refuses, and its session spawns the next.
func TestPIDs(t *testing.T) {
	w := newWorld(t, map[string]string{"m": "name: m\nsteps: [{say: hm}]\n"})
	seen := map[uint64]bool{}
	for i := range 6 {
		for j := range 5 {
			pid := w.open(fmt.Sprint("s", i, j), "m", false)
			if seen[pid] {
				t.Errorf("pid %d again", pid)
			}
			seen[pid] = true
		}
		w.restart()
	}
	pid := w.open("last", "m", false)
	w.admit("last", "a", "x")
	w.ended(pid)
	if _, err := w.host.Signal(t.Context(), pid, "x", wire.Signal{Signal: wire.Interrupt}); code(err) != wire.ProcessEnded {
		t.Errorf("signal to an ended process: %v", err)
	}
	if p := w.signal(pid, wire.Terminate); *p.ExitCode != 0 {
		t.Errorf("terminated again: %+v", p)
	}
	st := w.admit("last", "b", "y")
	if st.PID <= pid || seen[st.PID] {
		t.Errorf("input of process %d after %d", st.PID, pid)
	}
	w.ended(st.PID)
	s, err := w.host.Session(t.Context(), "last")
	w.must(err)
	if s.PID != st.PID {
		t.Errorf("session %+v", s)
	}
	if got := w.told(st.PID); got != "user: x\nassistant: hm\nuser: y\nassistant: \n" {
		t.Errorf("transcript %q", got)
	}
}

// A session that is closed ends its process and takes nothing more; what it has stays.
func TestClose(t *testing.T) {
	w := newWorld(t, map[string]string{"m": "name: m\nsteps: [{say: hm}]\n"})
	w.stage.hold("m")
	pid := w.open("s", "m", true)
	w.admit("s", "a", "x")
	w.await("a stream", func() bool { return len(w.stage.requests()) == 1 })
	w.admit("s", "b", "y")
	for range 2 {
		s, err := w.host.Close(t.Context(), "s")
		w.must(err)
		if s.State != "closed" || s.ClosedAt == nil {
			t.Errorf("session %+v", s)
		}
	}
	p := w.ended(pid)
	if *p.ExitCode != 1 || p.Reason != "session closed" {
		t.Errorf("process %+v", p)
	}
	if _, err := w.host.Admit(t.Context(), "s", "c", wire.Input{Text: "z"}); code(err) != wire.SessionClosed {
		t.Errorf("input to a closed session: %v", err)
	}
	if n := w.one(`select count(*) from input where state = 'cancelled'`); n != 1 {
		t.Errorf("%d inputs cancelled", n)
	}
	if _, err := w.host.Close(t.Context(), "none"); code(err) != wire.NotFound {
		t.Errorf("closing what is not there: %v", err)
	}
}
