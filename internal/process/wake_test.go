package process_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"soma/ident"
	"soma/internal/agent/tool"
	"soma/internal/neuron"
	"soma/internal/process"
	"soma/internal/process/facts"
	"soma/internal/pykernel"
	"soma/message"
	"soma/wire"
)

// heard is how the supervisor of python kernels tells the owner of one what has happened in it.
func (w *world) heard(owner neuron.ID, id ident.ID, alias string, m any, ops ...neuron.Op) error {
	b, err := json.Marshal(m)
	w.must(err)
	return w.engine.Accept(w.t.Context(), neuron.Delivery{ID: id, Alias: alias, Payload: b, Target: owner, Correlation: id, At: now()}, ops...)
}

func ownerOf(pid uint64) neuron.ID {
	return neuron.ID{Owner: "me", Kind: process.ProcessKind, Key: ident.PID(pid).String()}
}

// hear tells a process of something, and waits until its turn is committed.
func (w *world) hear(pid uint64, alias string, m any, ops ...neuron.Op) {
	w.t.Helper()
	id := ident.New(now())
	w.must(w.heard(ownerOf(pid), id, alias, m, ops...))
	w.await("the turn of "+alias, func() bool { return w.one(`select count(*) from turn where delivery_id = ?`, id[:]) == 1 })
}

// kernelOf returns the newest python kernel of a session.
func (w *world) kernelOf(session string) (id string) {
	w.t.Helper()
	w.must(w.store.Query(w.t.Context(), `select id from kernel where session = ? order by created_at desc limit 1`, []any{session},
		func(scan func(...any) error) error { return scan(&id) }))
	return id
}

// waitsForCell waits until the process waits for the result of one cell, and returns that.
func (w *world) waitsForCell(pid uint64) (cell string) {
	w.t.Helper()
	w.awaitState(pid, wire.Blocked, "tool result")
	w.must(w.store.Query(w.t.Context(), `select cell from tool_call where pid = ? and state = 'running'`, []any{int64(pid)},
		func(scan func(...any) error) error { return scan(&cell) }))
	return cell
}

func (w *world) backgrounded(pid uint64, cell string) {
	w.t.Helper()
	w.hear(pid, pykernel.CellBackgroundedAlias, pykernel.CellBackgrounded{Kernel: w.kernelOf(w.process(pid).Session), Cell: cell, DurationMS: 60_000,
		Output: pykernel.Output{Head: "so far\n", Size: 7}})
}

func (w *world) cellEnds(pid uint64, cell string, wake bool) {
	w.t.Helper()
	value := "42"
	w.hear(pid, pykernel.CellEndedAlias, pykernel.CellEnded{Kernel: w.kernelOf(w.process(pid).Session), Cell: cell, Status: pykernel.CellOK,
		DurationMS: 90_000, Value: &value, Background: true, Wake: wake, Output: pykernel.Output{Head: "so far\nall\n", Size: 11}})
}

func (w *world) jobEnds(pid uint64, job string, wake bool) {
	w.t.Helper()
	zero := 0
	w.hear(pid, pykernel.JobEndedAlias, pykernel.JobEnded{Kernel: w.kernelOf(w.process(pid).Session), Job: job, Command: "make " + job, ExitCode: &zero,
		DurationMS: 1200, Wake: wake})
}

func (w *world) reads(pid uint64, cells, jobs []string) {
	w.t.Helper()
	w.hear(pid, pykernel.SeenAlias, pykernel.ResultsSeen{Kernel: w.kernelOf(w.process(pid).Session), Cells: cells, Jobs: jobs})
}

// wakes returns the wakes of a session as "id state", oldest first.
func (w *world) wakes(session string) (all []string) {
	w.t.Helper()
	w.must(w.store.Query(w.t.Context(), `select client_id, state from input where session = ? and mode = 'wake' order by id`, []any{session},
		func(scan func(...any) error) error {
			var id, state string
			err := scan(&id, &state)
			all = append(all, id+" "+state)
			return err
		}))
	return all
}

const slow = `
name: m
steps:
  - calls: [{python: 'slow()'}]
  - say: 'it goes on'
  - say: 'done: {{len .Inputs}}'
`

func background(o *process.Options) { o.Background = time.Minute }

// atCell is a process of a session s that waits for its first cell.
func atCell(t *testing.T, keep bool) (w *world, pid uint64, cell string) {
	t.Helper()
	w = newWorld(t, map[string]string{"m": slow}, withHost(background))
	pid = w.open("s", "m", keep)
	w.admit("s", "a", "x")
	return w, pid, w.waitsForCell(pid)
}

// P-039, P-044, P-047: an agent's cell carries its origin and when it goes on in the background; then its call ends with the output so
// far, its row stays started, and the agent turn goes on. A run waits for it; its end is stored with a wake whose id is the cell's,
// the model reads the notice, people one line, and the process ends.
func TestBackgroundedCell(t *testing.T) {
	w, pid, cell := atCell(t, false)
	var frame pykernel.Execute
	w.must(w.store.Query(t.Context(), `select body from kernel_frame where cell = ?`, []any{cell}, func(scan func(...any) error) error {
		var b []byte
		if err := scan(&b); err != nil {
			return err
		}
		return json.Unmarshal(b, &frame)
	}))
	if frame.Origin != pykernel.OriginModel || frame.BackgroundMS != 60_000 || frame.TimeoutMS != 3_600_000 {
		t.Errorf("frame %+v", frame)
	}
	w.backgrounded(pid, cell)
	w.awaitState(pid, wire.Blocked, "background work")
	c, err := w.host.Cell(t.Context(), cell)
	w.must(err)
	if c.State != "backgrounded" || c.EndedAt != nil || w.one(`select count(*) from cell where state = 'started'`) != 1 {
		t.Errorf("cell %+v", c)
	}
	r := bodies[wire.ToolResultEvent](w, "s", wire.ToolResult)[0]
	if r.Status != tool.Backgrounded || r.Output != "so far\n" || r.Cell != cell {
		t.Errorf("event %+v", r)
	}
	h := w.history(pid)
	if text := h[2].Text; h[2].Status != message.OK || !strings.Contains(text, `"status":"backgrounded"`) || !strings.Contains(text, cell) || !strings.HasSuffix(text, "so far") {
		t.Errorf("the model reads %+v", h[2])
	}
	if h[3].Text != "it goes on" {
		t.Errorf("history %+v", h)
	}

	w.cellEnds(pid, cell, true)
	p := w.ended(pid)
	if p.ExitCode == nil || *p.ExitCode != 0 {
		t.Errorf("process %+v", p)
	}
	if got := w.wakes("s"); fmt.Sprint(got) != "["+cell+" delivered]" {
		t.Errorf("wakes %v", got)
	}
	in := bodies[wire.InputEvent](w, "s", wire.InputAdmitted)
	line := "cell finished (status=ok, ran 90.0s): slow()"
	if e := in[len(in)-1]; e.Kind != wire.InputWake || e.Line != line || e.ClientID != cell || e.Text != "" {
		t.Errorf("event %+v", e)
	}
	list, err := w.host.Messages(t.Context(), pid, 0, 0)
	w.must(err)
	if m := list[4]; m.Message.Role != message.User || m.Line != line || !strings.Contains(m.Message.Text, line) || !strings.Contains(m.Message.Text, "cell id: "+cell) ||
		!strings.Contains(m.Message.Text, "result: 42") {
		t.Errorf("message %+v", m)
	}
	joined := bodies[wire.StepStartedEvent](w, "s", wire.StepStarted)[2]
	if !joined.Turn || len(joined.Messages) != 1 || joined.Messages[0].Line != line {
		t.Errorf("step %+v", joined)
	}
	if c, err = w.host.Cell(t.Context(), cell); err != nil || c.State != "ended" || c.Status != "ok" || *c.Value != "42" {
		t.Errorf("cell %+v, %v", c, err)
	}
	if n := w.one(`select count(*) from ledger where pid = ?`, int64(pid)); n != 3 { // the wake's turn is billed like any other
		t.Errorf("%d attempts billed", n)
	}
}

// P-044: unread ends share the wake that waits; reading a part takes that part out; reading all retires it, and the process rests. A
// wake that was delivered is over: the next end makes a new one.
func TestSharedWake(t *testing.T) {
	w, pid, cell := atCell(t, true)
	w.backgrounded(pid, cell)
	w.awaitState(pid, wire.Blocked, "waiting for input")
	w.signal(pid, wire.Pause)
	w.awaitState(pid, wire.Blocked, "paused")

	w.jobEnds(pid, "j1", true)
	w.cellEnds(pid, cell, true)
	w.jobEnds(pid, "j2", true)
	if got := w.wakes("s"); fmt.Sprint(got) != "[j1 admitted]" {
		t.Fatalf("wakes %v", got)
	}
	in := bodies[wire.InputEvent](w, "s", wire.InputAdmitted)
	if e := in[len(in)-1]; e.ClientID != "j1" || e.Line != "job finished (exit_code=0, ran 1.2s): make j1\ncell finished (status=ok, ran 90.0s): slow()\njob finished (exit_code=0, ran 1.2s): make j2" {
		t.Errorf("event %+v", e)
	}
	w.reads(pid, []string{cell}, []string{"j2"})
	w.signal(pid, wire.Resume)
	w.await("the wake's turn", func() bool { return w.count("s", wire.TurnEnded) == 2 })
	h := w.history(pid)
	if text := h[4].Text; !strings.Contains(text, "make j1") || strings.Contains(text, "j2") || strings.Contains(text, "cell") {
		t.Errorf("the model reads %q", text)
	}
	w.reads(pid, nil, []string{"j1"}) // late
	if got := w.wakes("s"); fmt.Sprint(got) != "[j1 delivered]" {
		t.Errorf("wakes %v", got)
	}

	w.signal(pid, wire.Pause)
	w.awaitState(pid, wire.Blocked, "paused")
	w.jobEnds(pid, "j3", true)
	w.jobEnds(pid, "j4", true)
	w.reads(pid, nil, []string{"j4"})
	w.reads(pid, nil, []string{"j3"})
	if got := w.wakes("s"); fmt.Sprint(got) != "[j1 delivered j3 retired]" {
		t.Errorf("wakes %v", got)
	}
	ended := bodies[wire.InputEvent](w, "s", wire.InputEnded)
	if len(ended) != 1 || ended[0].ClientID != "j3" || ended[0].State != "retired" || ended[0].Kind != wire.InputWake {
		t.Errorf("events %+v", ended)
	}
	w.signal(pid, wire.Resume)
	w.awaitState(pid, wire.Blocked, "waiting for input")
	if n := len(w.history(pid)); n != len(h)+1 && n != len(h) {
		t.Errorf("%d messages after a wake that was read, %d before", n, len(h))
	}
	if n := len(w.stage.requests()); n != 3 {
		t.Errorf("%d requests", n)
	}
	st, err := w.host.Input(t.Context(), "s", "j3")
	if err != nil || st.Mode != wire.InputWake || st.State != "retired" {
		t.Errorf("input %+v, %v", st, err)
	}
}

// P-044, P-053: an end that wakes nobody (a service, what was read or cancelled) makes no input; a run that waited for it ends.
func TestQuietEnds(t *testing.T) {
	w, pid, cell := atCell(t, false)
	job := func(id string, service bool) neuron.Op {
		return &pykernel.InsertJob{Kernel: w.kernelOf("s"), Session: "s", Job: pykernel.JobStart{Job: id, Command: "make " + id, Service: service, StartedAt: 1}}
	}
	w.must(w.engine.Write(t.Context(), neuron.PlaceOf("s"), job("j1", false), job("server", true)))
	w.backgrounded(pid, cell)
	w.awaitState(pid, wire.Blocked, "background work")
	w.cellEnds(pid, cell, false)
	if p := w.process(pid); p.Reason != "background work" {
		t.Errorf("the job runs: %+v", p)
	}
	w.jobEnds(pid, "j1", false)
	if p := w.ended(pid); *p.ExitCode != 0 || len(w.wakes("s")) != 0 {
		t.Errorf("%+v, wakes %v", p, w.wakes("s"))
	}
	w.jobEnds(pid, "j9", true) // of a process that has ended
	if n := len(w.wakes("s")); n != 0 {
		t.Errorf("%d wakes", n)
	}
}

// P-053: a wake's id is the job's, or derived from it where an input of the session has that already: ids of jobs are a python kernel's
// own, and clients choose theirs.
func TestWakeWithATakenID(t *testing.T) {
	w := newWorld(t, map[string]string{"m": "name: m\nsteps: [{say: a}, {say: b}, {say: c}]\n"})
	pid := w.open("s", "m", true)
	w.admit("s", "j1", "from a client")
	w.awaitState(pid, wire.Blocked, "waiting for input")
	w.jobEnds(pid, "j1", true)
	w.await("the wake's turn", func() bool { return w.count("s", wire.TurnEnded) == 2 })
	w.jobEnds(pid, "no id/at all", true)
	w.await("the wake's turn", func() bool { return w.count("s", wire.TurnEnded) == 3 })
	want := fmt.Sprintf("[%s delivered %s delivered]", ident.Named("", "job:j1"), ident.Named("", "job:no id/at all"))
	if got := w.wakes("s"); fmt.Sprint(got) != want {
		t.Errorf("wakes %v, want %s", got, want)
	}
	if _, err := w.host.Admit(t.Context(), "s", "w", wire.Input{Text: "x", Mode: wire.InputWake}); code(err) != wire.BadRequest {
		t.Errorf("a wake by a client: %v", err)
	}
}

// P-089, P-096: the end of a python kernel wakes for the jobs that it stopped and for the cell that it had in the background; the next
// result says that names are gone, and names what the wake did not.
func TestPykernelGoneInTheBackground(t *testing.T) {
	w := newWorld(t, map[string]string{"m": `
name: m
steps:
  - calls: [{python: 'slow()'}]
  - say: 'it goes on'
  - calls: [{python: 'x'}]
  - say: 'end'
`}, withHost(background))
	pid := w.open("s", "m", true)
	w.admit("s", "a", "x")
	cell := w.waitsForCell(pid)
	first := w.kernelOf("s")
	w.backgrounded(pid, cell)
	w.awaitState(pid, wire.Blocked, "waiting for input")
	release := w.stage.hold("m")
	job := pykernel.JobStart{Job: "j1", Command: "make all\nsecond line", StartedAt: 1}
	w.must(w.engine.Write(t.Context(), neuron.PlaceOf("s"), &pykernel.InsertJob{Kernel: first, Session: "s", Job: job},
		&pykernel.InsertJob{Kernel: first, Session: "s", Job: pykernel.JobStart{Job: "j2", Command: "serve", Service: true, StartedAt: 2}}))
	w.hear(pid, pykernel.CellEndedAlias, pykernel.CellEnded{Kernel: first, Cell: cell, Status: pykernel.CellUnknown, Background: true, Wake: true,
		Note: "result unknown: the python kernel ended"})
	w.hear(pid, pykernel.GoneAlias, pykernel.Gone{Kernel: first, Jobs: []pykernel.Job{{ID: "j1", Command: job.Command}, {ID: "j2", Command: "serve", Service: true}}},
		&pykernel.EndedKernel{ID: first, At: now()}, &pykernel.LoseJobs{Kernel: first, At: now()})
	release()
	second := w.waitsForCell(pid)
	value := "1"
	w.hear(pid, pykernel.CellEndedAlias, pykernel.CellEnded{Kernel: w.kernelOf("s"), Cell: second, Status: pykernel.CellOK, Value: &value})
	w.await("the wake's turn", func() bool { return w.count("s", wire.TurnEnded) == 2 })
	var told, note string
	for _, m := range w.history(pid) {
		switch {
		case m.Role == message.User && strings.Contains(m.Text, "Work in the background"):
			told += m.Text
		case m.Role == message.Tool && m.Status == message.OK:
			note = m.Text
		}
	}
	if !strings.Contains(told, "cell finished (status=unknown") || !strings.Contains(told, "job stopped with its python kernel: make all") || strings.Contains(told, "serve") {
		t.Errorf("the wake tells %q", told)
	}
	if want := "names of the earlier kernel are gone; Jobs stopped by the restart: j2 (serve)."; !strings.Contains(note, want) ||
		strings.Contains(note, "make all") || strings.Contains(note, cell+" (slow())") {
		t.Errorf("the next result says %s, want %s", note, want)
	}
}

// P-044: what has happened can be seen: the delivery of an end leads to the wake that it began, and a process is found by what it was
// asked, not by what woke it.
func TestTraceOfAWake(t *testing.T) {
	w := newWorld(t, map[string]string{"m": slow}, withHost(background))
	pid := w.open("s", "m", true)
	w.admit("s", "asked", "x")
	cell := w.waitsForCell(pid)
	w.backgrounded(pid, cell)
	w.awaitState(pid, wire.Blocked, "waiting for input")
	w.cellEnds(pid, cell, true)
	w.await("the wake's turn", func() bool { return w.count("s", wire.TurnEnded) == 2 })
	w.jobEnds(pid, "j1", true)
	w.await("the wake's turn", func() bool { return w.count("s", wire.TurnEnded) == 3 })
	f := &facts.Facts{Owner: "me", Reader: w.store}
	for id, line := range map[string]string{cell: "cell finished (status=ok, ran 90.0s): slow()", "j1": "job finished (exit_code=0, ran 1.2s): make j1"} {
		var e *neuron.Entry
		w.must(w.store.Query(t.Context(), `select incoming from turn where cast(incoming as text) like ? and cast(incoming as text) like '%_ended.v1%'`,
			[]any{"%" + id + "%"}, func(scan func(...any) error) error {
				var b []byte
				err := scan(&b)
				e = &neuron.Entry{}
				return errors.Join(err, json.Unmarshal(b, e))
			}))
		list, err := f.Facts(t.Context(), e)
		w.must(err)
		last := list[len(list)-1]
		if last.Kind != wire.NodeInput || last.ID != id || last.What != line || last.State != "delivered" || last.Note != wire.InputWake || last.JoinedAt.IsZero() {
			t.Errorf("facts of the end of %s: %+v", id, list)
		}
	}
	found, ok, err := f.Find(t.Context(), ident.PID(pid).String())
	if err != nil || !ok || w.one(`select count(*) from turn where delivery_id = ? and cast(incoming as text) like '%asked%'`, found.Delivery[:]) != 1 {
		t.Errorf("the process is found by %+v, %v, %v", found, ok, err)
	}
	if found, ok, err = f.Find(t.Context(), "j1"); err != nil || !ok || found.Is != wire.NodeInput || found.Delivery.IsZero() {
		t.Errorf("the wake of a job is found by %+v, %v, %v", found, ok, err)
	}
}

// P-038, P-127: the seventeenth cell of a python kernel is refused with a result that says so, and without a row.
func TestSeventeenthCell(t *testing.T) {
	calls := strings.Repeat("      - {python: 'x'}\n", 20)
	w := newWorld(t, map[string]string{"m": "name: m\nsteps:\n  - calls:\n" + calls + "  - calls: [{python: 'y'}]\n  - say: end\n"}, withHost(background))
	pid := w.open("s", "m", true)
	w.admit("s", "a", "x")
	w.awaitState(pid, wire.Blocked, "tool result")
	var cells []string
	w.must(w.store.Query(t.Context(), `select id from cell where pid = ? order by id`, []any{int64(pid)}, func(scan func(...any) error) error {
		var id string
		err := scan(&id)
		cells = append(cells, id)
		return err
	}))
	if len(cells) != 16 {
		t.Fatalf("%d cells", len(cells))
	}
	for _, c := range cells {
		w.backgrounded(pid, c)
	}
	w.await("the end of the turn", func() bool { return w.count("s", wire.TurnEnded) == 1 })
	refused := 0
	for _, m := range w.history(pid) {
		if m.Role == message.Tool && m.Status == message.Error {
			refused++
			if !strings.Contains(m.Text, "not started: 16 cells run already") {
				t.Errorf("result %s", m.Text)
			}
		}
	}
	if n := w.one(`select count(*) from cell`); refused != 5 || n != 16 {
		t.Errorf("%d refused, %d cells", refused, n)
	}

	w.py("p")
	for i := range 17 {
		_, err := w.host.RunCell(t.Context(), "p", fmt.Sprint(i), wire.RunCell{Code: "x"})
		if i < 16 && err != nil || i == 16 && (code(err) != wire.Busy || !strings.Contains(err.Error(), "16 cells run already")) {
			t.Errorf("cell %d: %v", i, err)
		}
	}
	if _, err := w.host.RunCell(t.Context(), "p", "3", wire.RunCell{Code: "x"}); err != nil {
		t.Errorf("a repeat of what was taken: %v", err)
	}
}

// P-039: a cell of a session of kind py goes on in the background only where its request asks for that; it is shown so, and may be
// stopped. Its end wakes nobody.
func TestBackgroundWithoutAnAgent(t *testing.T) {
	w := newWorld(t, nil, withHost(background))
	w.py("s")
	plain, err := w.host.RunCell(t.Context(), "s", "a", wire.RunCell{Code: "1"})
	w.must(err)
	asked, err := w.host.RunCell(t.Context(), "s", "b", wire.RunCell{Code: "2", BackgroundMS: 500})
	w.must(err)
	for cell, want := range map[string]string{plain.ID: `"timeout_ms":3600000,"origin":"person",`, asked.ID: `"origin":"person","background_ms":500,`} {
		var body string
		w.must(w.store.Query(t.Context(), `select cast(body as text) from kernel_frame where cell = ?`, []any{cell}, func(scan func(...any) error) error { return scan(&body) }))
		if !strings.Contains(body, want) || strings.Contains(body, "background_ms") != (cell == asked.ID) {
			t.Errorf("frame %s", body)
		}
	}
	owner := neuron.ID{Owner: "me", Kind: process.SessionKind, Key: "s"}
	tell := func(alias string, m any) {
		t.Helper()
		id := ident.New(now())
		w.must(w.heard(owner, id, alias, m))
		w.await("the turn of "+alias, func() bool { return w.one(`select count(*) from turn where delivery_id = ?`, id[:]) == 1 })
	}
	tell(pykernel.CellBackgroundedAlias, pykernel.CellBackgrounded{Kernel: asked.Kernel, Cell: asked.ID, DurationMS: 500, Output: pykernel.Output{Head: "x", Size: 1}})
	c, err := w.host.Cell(t.Context(), asked.ID)
	w.must(err)
	ev := bodies[wire.CellEvent](w, "s", wire.CellBackground)
	if c.State != "backgrounded" || len(ev) != 1 || ev[0].Cell.State != "backgrounded" || ev[0].Output != "x" {
		t.Errorf("cell %+v, events %+v", c, ev)
	}
	if _, err := w.host.InterruptCell(t.Context(), asked.ID); err != nil || w.one(`select count(*) from kernel_frame where cell = ?`, asked.ID) != 2 {
		t.Errorf("interrupt: %v", err)
	}
	tell(pykernel.CellEndedAlias, pykernel.CellEnded{Kernel: asked.Kernel, Cell: asked.ID, Status: pykernel.CellInterrupted, Background: true, Wake: true})
	tell(pykernel.JobEndedAlias, pykernel.JobEnded{Kernel: asked.Kernel, Job: "j", Wake: true})
	tell(pykernel.SeenAlias, pykernel.ResultsSeen{Kernel: asked.Kernel, Jobs: []string{"j"}})
	if c, err = w.host.Cell(t.Context(), asked.ID); err != nil || c.State != "ended" || len(w.wakes("s")) != 0 {
		t.Errorf("cell %+v, %v, wakes %v", c, err, w.wakes("s"))
	}
	if n := w.one(`select count(*) from cell where cast(body as text) like '%backgrounded_at%'`); n != 1 {
		t.Errorf("%d cells say that they were in the background", n)
	}
	if _, err := w.host.RunCell(t.Context(), "s", "c", wire.RunCell{Code: "1", BackgroundMS: 3_600_001}); code(err) != wire.BadRequest {
		t.Errorf("too late a background: %v", err)
	}
	// P-089: nobody has told what ended with its python kernel, so the next result does.
	at := now()
	w.must(w.engine.Write(t.Context(), neuron.PlaceOf("s"), &pykernel.InsertJob{Kernel: plain.Kernel, Session: "s", Job: pykernel.JobStart{Job: "j9", Command: "make"}},
		&pykernel.LoseJobs{Kernel: plain.Kernel, At: at}, &pykernel.EndedKernel{ID: plain.Kernel, At: at}))
	tell(pykernel.CellEndedAlias, pykernel.CellEnded{Kernel: plain.Kernel, Cell: plain.ID, Status: pykernel.CellUnknown})
	tell(pykernel.GoneAlias, pykernel.Gone{Kernel: plain.Kernel})
	next, err := w.host.RunCell(t.Context(), "s", "d", wire.RunCell{Code: "3"})
	w.must(err)
	tell(pykernel.CellEndedAlias, pykernel.CellEnded{Kernel: next.Kernel, Cell: next.ID, Status: pykernel.CellOK})
	want := "names of the earlier kernel are gone; Jobs stopped by the restart: j9 (make). Cells ended by the restart: " + plain.ID + " (1)."
	if c, err = w.host.Cell(t.Context(), next.ID); err != nil || c.Note != want {
		t.Errorf("the next result says %q, want %q; %v", c.Note, want, err)
	}
}

// P-044: an agent's cell in the background may be stopped by a person; an interrupt of the process leaves it alone, and cancels a wake
// that waits.
func TestInterruptAndTheBackground(t *testing.T) {
	w, pid, cell := atCell(t, true)
	if _, err := w.host.InterruptCell(t.Context(), cell); code(err) != wire.Unprocessable {
		t.Errorf("a cell that its agent waits for: %v", err)
	}
	w.backgrounded(pid, cell)
	w.awaitState(pid, wire.Blocked, "waiting for input")
	w.signal(pid, wire.Pause)
	w.jobEnds(pid, "j1", true)
	w.signal(pid, wire.Interrupt)
	if got := w.wakes("s"); fmt.Sprint(got) != "[j1 cancelled]" {
		t.Errorf("wakes %v", got)
	}
	if n := w.one(`select count(*) from kernel_frame where cell = ?`, cell); n != 1 {
		t.Errorf("%d frames of the cell", n)
	}
	if _, err := w.host.InterruptCell(t.Context(), cell); err != nil || w.one(`select count(*) from kernel_frame where cell = ?`, cell) != 2 {
		t.Errorf("a cell in the background: %v", err)
	}
}

// P-037, P-064, P-022: what a cell has shown and called is stored with it, and its images go to the model by reference.
func TestShownByACell(t *testing.T) {
	w, pid, cell := atCell(t, false)
	image := pykernel.ImageID(must(ident.Parse(cell)), 0)
	w.hear(pid, pykernel.CellEndedAlias, pykernel.CellEnded{Kernel: w.kernelOf("s"), Cell: cell, Status: pykernel.CellError, Calls: []string{"files.read", "run"},
		Error: &pykernel.CellFault{Type: "E", Message: "m", Traceback: "t"}, Repair: "cells.run(…)", ImageErrors: []string{"b.png is too large"},
		Images: []pykernel.Image{{Media: "image/png", Name: "a.png", Size: 3, Content: image}},
		Output: pykernel.Output{Size: 9, Head: "123456789", Spill: &pykernel.Spill{Path: "/out/x", Size: 9, Whole: true}}}, &pykernel.KeepImage{ID: image, Bytes: []byte("png")})
	w.ended(pid)
	m := w.history(pid)[2]
	if len(m.Images) != 1 || m.Images[0] != (message.Image{Media: "image/png", Content: image.String(), Size: 3, Name: "a.png"}) {
		t.Errorf("message %+v", m)
	}
	var r tool.Result
	w.must(json.Unmarshal(m.Result, &r))
	if fmt.Sprint(r.Calls) != "[files.read run]" || r.Repair == "" || len(r.ImageErrors) != 1 || r.Output.Spill == nil || r.Output.Spill.Path != "/out/x" ||
		len(r.Images) != 1 || r.Images[0].Path != "/v1/cells/"+cell+"/images/1" || r.Images[0].Size != 3 {
		t.Errorf("result %+v", r)
	}
	c, err := w.host.Cell(t.Context(), cell)
	w.must(err)
	ev := bodies[wire.ToolResultEvent](w, "s", wire.ToolResult)[0]
	for _, s := range []wire.Shown{c.Shown, ev.Shown} {
		if len(s.Images) != 1 || s.Images[0] != (wire.CellImage{N: 1, Media: "image/png", Name: "a.png", Size: 3}) || len(s.ImageErrors) != 1 || s.Repair == "" {
			t.Errorf("shown %+v", s)
		}
	}
	if fmt.Sprint(c.Calls) != "[files.read run]" {
		t.Errorf("cell %+v", c)
	}
	reqs := w.stage.requests()
	if b, err := reqs[len(reqs)-1].image(t.Context(), image.String()); err != nil || string(b) != "png" {
		t.Errorf("the model is shown %q, %v", b, err)
	}
	if b, err := reqs[len(reqs)-1].image(t.Context(), ident.New(now()).String()); err != nil || b != nil {
		t.Errorf("an image that is gone: %q, %v", b, err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// P-044: the end and its wake are one commit: a daemon that dies before it hears of the end again, and one that dies after it has
// both; the model is told exactly once.
func TestWakeSurvivesDeath(t *testing.T) {
	for left := range int64(3) {
		w, pid, cell := atCell(t, true)
		w.backgrounded(pid, cell)
		w.awaitState(pid, wire.Blocked, "waiting for input")
		value := "42"
		ended := pykernel.CellEnded{Kernel: w.kernelOf("s"), Cell: cell, Status: pykernel.CellOK, Value: &value, Background: true, Wake: true}
		id := ident.Derive(must(ident.Parse(cell)), "done")
		w.cut(left)
		_ = w.heard(ownerOf(pid), id, pykernel.CellEndedAlias, ended) // as far as it came
		w.await("the cut", func() bool { return w.dead })
		w.restart()
		w.must(w.heard(ownerOf(pid), id, pykernel.CellEndedAlias, ended)) // the python kernel has no acknowledgement
		w.await("the wake's turn", func() bool {
			return w.one(`select count(*) from event where session = 's' and kind = ?`, wire.TurnEnded) == 2
		})
		if got := w.wakes("s"); fmt.Sprint(got) != "["+cell+" delivered]" {
			t.Errorf("after %d commits: wakes %v", left, got)
		}
		if n := strings.Count(w.told(pid), "cell finished (status=ok"); n != 1 {
			t.Errorf("after %d commits: told %d times", left, n)
		}
	}
}
