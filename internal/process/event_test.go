package process_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"soma/message"
	"soma/wire"
)

// K-50, M-04: the events of each session are numbered without a gap in commit order, whatever runs at the same time; what is
// read from the rows is what was published; the session's row has the last.
func TestEventSequences(t *testing.T) {
	w := newWorld(t, map[string]string{"m": "name: m\nsteps: [{calls: [{tool: none, arguments: {}}]}, {say: end}]\n"})
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			s := fmt.Sprint("s", i%6)
			if _, err := w.host.Open(t.Context(), s, wire.OpenSession{Workspace: w.folder, Model: "m"}); err != nil {
				t.Error(err)
			}
			if _, err := w.host.Admit(t.Context(), s, fmt.Sprint(i), wire.Input{Text: "x"}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	w.await("all", func() bool {
		return w.one(`select count(*) from process where ended_at is null`) == 0 && w.one(`select count(*) from input where state = 'delivered'`) == 12
	})
	w.restart()
	for i := range 6 {
		session := fmt.Sprint("s", i)
		var shown []wire.Event
		for _, e := range w.events {
			if e.Session == session {
				shown = append(shown, e)
			}
		}
		var stored []wire.Event
		for {
			page, first, last, err := w.host.Events(t.Context(), session, uint64(len(stored)), 5)
			w.must(err)
			if first != 1 || last != uint64(len(shown)) {
				t.Errorf("first %d, last %d of %d", first, last, len(shown))
			}
			if len(page) == 0 {
				break
			}
			stored = append(stored, page...)
		}
		if len(stored) != len(shown) {
			t.Fatalf("%d events stored, %d shown", len(stored), len(shown))
		}
		for n, e := range stored {
			s := shown[n]
			if e.Seq != uint64(n+1) || s.Seq != e.Seq || s.Kind != e.Kind || string(s.Body) != string(e.Body) || !s.At.Equal(e.At) || s.PID != e.PID {
				t.Errorf("event %d: stored %+v, shown %+v", n, e, s)
			}
		}
		s, err := w.host.Session(t.Context(), session)
		w.must(err)
		if s.LastEvent != uint64(len(stored)) {
			t.Errorf("last event %d", s.LastEvent)
		}
	}
}

// N-46: an input of almost 64 KiB and an answer of megabytes go through; the body of a large message is content, and events
// carry the beginning and say so, while the whole is read from the messages.
func TestLargeTexts(t *testing.T) {
	w := newWorld(t, nil)
	const size = 3 << 20
	w.stage.scripts["m"] = flood{bytes: size}
	pid := w.open("s", "m", false)
	text := strings.Repeat("<&\u2028\x01", (wire.MaxBody-200)/6)
	w.admit("s", "a", text)
	w.ended(pid)
	st := w.admit("s", "b", text) // by way of the session
	w.ended(st.PID)
	h := w.history(pid)
	if len(h) != 4 || h[0].Text != text || h[2].Text != text || len(h[1].Text) != size || len(h[3].Text) != size {
		t.Fatalf("%d messages", len(h))
	}
	if n := w.one(`select count(*) from message where body is null and content is not null`); n != 4 {
		t.Errorf("%d messages in content", n)
	}
	for _, e := range w.events {
		if len(e.Body) > wire.MaxEvent {
			t.Errorf("event %s has %d bytes", e.Kind, len(e.Body))
		}
	}
	for _, e := range bodies[wire.InputEvent](w, "s", wire.InputAdmitted) {
		if !e.Cut || !strings.HasPrefix(text, e.Text) || len(e.Text) < 10_000 {
			t.Errorf("input shown with %d bytes, cut %v", len(e.Text), e.Cut)
		}
	}
	for _, e := range bodies[wire.StepStartedEvent](w, "s", wire.StepStarted) {
		if len(e.Messages) != 1 || !e.Messages[0].Cut || !strings.HasPrefix(text, e.Messages[0].Message.Text) {
			t.Errorf("messages %d", len(e.Messages))
		}
	}
	for i, e := range bodies[wire.StepEndedEvent](w, "s", wire.StepEnded) {
		if m := e.Message; !m.Cut || !strings.HasPrefix(h[1].Text, m.Message.Text) || len(m.Message.Text) < 32<<10 || m.Seq != uint64(2*i+2) {
			t.Errorf("answer %d shown with %d bytes, cut %v", m.Seq, len(m.Message.Text), m.Cut)
		}
	}
}

// As many inputs and calls as may be, with the longest ids, fit into the process's state and into bounded events.
func TestFullProcess(t *testing.T) {
	w := newWorld(t, nil)
	w.stage.scripts["m"] = flood{calls: 128}
	release := w.stage.hold("m")
	pid := w.open("s", "m", true)
	w.admit("s", "first", "x")
	w.await("a stream", func() bool { return len(w.stage.requests()) == 1 })
	for i := range 400 {
		w.admit("s", fmt.Sprintf("%064d", i), strings.Repeat("long ", 100))
	}
	if _, err := w.host.Admit(t.Context(), "s", "more", wire.Input{Text: "x"}); code(err) != wire.Busy {
		t.Errorf("input 401: %v", err)
	}
	w.stage.hold("m")
	release()
	w.awaitEvent("s", wire.StepStarted, 2, nil)
	e := bodies[wire.StepStartedEvent](w, "s", wire.StepStarted)[1]
	if len(e.Messages) != 400 {
		t.Errorf("%d messages told of", len(e.Messages))
	}
	for _, e := range w.events {
		if len(e.Body) > wire.MaxEvent {
			t.Errorf("event %s has %d bytes", e.Kind, len(e.Body))
		}
	}
	w.admit("s", "more", "x") // what was refused is judged anew
	w.signal(pid, wire.Interrupt)
	if n := len(w.history(pid)); n != 1+1+128+400 {
		t.Errorf("%d messages", n)
	}
}

// copies makes many processes, each with a session of its own, of the one whose pid it has.
type copies struct {
	pid      uint64
	from, to int64 // pids of the copies
	folder   string
}

func (c *copies) SQL() string {
	return `with recursive n (pid) as (select ? union all select pid + 1 from n where pid < ?)
insert into process select n.pid, owner, printf('s%05d', n.pid), branch, parent, agent, model, ?, state, reason, detail, since, exit_code,
steps, cells, tokens, cost, estimated, created_at, ended_at from n, process where process.pid = ?`
}

func (c *copies) Args() []any { return []any{c.from, c.to, c.folder, int64(c.pid)} }

// K-05: lists and counts are right at 10,000 processes, in whatever pages they are read.
func TestManyProcesses(t *testing.T) {
	w := newWorld(t, map[string]string{"m": "name: m\nsteps: [{say: hm}]\n"})
	created, blocked, ended := w.open("created", "m", true), w.open("blocked", "m", true), w.open("ended", "m", false)
	w.admit("blocked", "a", "x")
	w.admit("ended", "a", "x")
	w.awaitState(blocked, wire.Blocked, "waiting for input")
	w.ended(ended)
	folders := []string{t.TempDir(), t.TempDir()}
	w.must(w.engine.Write(t.Context(), 0,
		&copies{created, 10_000, 17_999, folders[0]}, &copies{blocked, 18_000, 18_999, folders[1]}, &copies{ended, 19_000, 19_996, folders[1]}))
	all := func(f wire.ProcessFilter) (count int, live map[string]int) {
		live = map[string]int{}
		f.Limit = 777
		for {
			page, err := w.host.Processes(t.Context(), f)
			w.must(err)
			for _, p := range page {
				if p.PID <= f.After {
					t.Fatalf("pid %d after %d", p.PID, f.After)
				}
				f.After = p.PID
				count++
				live[p.State.State]++
				if f.Workspace != "" && p.Workspace != f.Workspace {
					t.Errorf("process of %s", p.Workspace)
				}
			}
			if len(page) < f.Limit {
				return count, live
			}
		}
	}
	if n, live := all(wire.ProcessFilter{All: true}); n != 10_000 || live["terminated"] != 998 || live["blocked"] != 1001 || live["created"] != 8001 {
		t.Errorf("%d in all, %v", n, live)
	}
	if n, live := all(wire.ProcessFilter{}); n != 9002 || live["terminated"] != 0 {
		t.Errorf("%d live, %v", n, live)
	}
	half, _ := all(wire.ProcessFilter{All: true, Workspace: folders[1]})
	other, _ := all(wire.ProcessFilter{Workspace: folders[1]})
	if half != 1997 || other != 1000 {
		t.Errorf("%d and %d by folder", half, other)
	}
	if n, _ := all(wire.ProcessFilter{All: true, Session: "s19000"}); n != 1 {
		t.Errorf("%d of a session", n)
	}
	counts, err := w.host.Counts(t.Context())
	w.must(err)
	if fmt.Sprint(counts) != fmt.Sprint(map[string]int{"blocked": 1001, "created": 8001}) {
		t.Errorf("counts %v", counts)
	}
	sessions, err := w.host.Sessions(t.Context(), wire.SessionFilter{Workspace: w.folder, After: "blocked", Limit: 1})
	w.must(err)
	if len(sessions) != 1 || sessions[0].ID != "created" || sessions[0].PID != created {
		t.Errorf("sessions %+v", sessions)
	}
}

// M-10: a branch stores names of model and tools and nothing of how they are reached.
func TestBranchStoresNames(t *testing.T) {
	w := newWorld(t, map[string]string{"m": "name: m\nsteps: [{calls: [{tool: none, arguments: {}}]}, {say: end}]\n"})
	pid := w.open("s", "m", false)
	w.admit("s", "a", "x")
	w.ended(pid)
	for _, m := range w.history(pid) {
		for _, c := range m.Calls {
			b, err := json.Marshal(c)
			w.must(err)
			if string(b) != `{"id":"call_1_1","tool":"none","arguments":{}}` {
				t.Errorf("stored call %s", b)
			}
		}
		if m.Role == message.Assistant && len(m.Opaque) > 0 {
			t.Errorf("message %+v", m)
		}
	}
}
