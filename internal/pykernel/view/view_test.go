package view_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/pykernel"
	"soma/internal/pykernel/view"
	"soma/internal/store/postgres"
	"soma/internal/store/postgres/postgrestest"
	"soma/internal/store/sqlite"
	"soma/wire"
)

// m runs the tests and then ends the server, before goroutines are counted.
type m struct{ *testing.M }

func (m m) Run() int { return postgrestest.Main(m.M) }

func TestMain(t *testing.M) { goleak.VerifyTestMain(m{t}) }

// statement is a write that a test has laid down.
type statement struct {
	sql  string
	args []any
}

func (s *statement) SQL() string { return s.sql }
func (s *statement) Args() []any { return s.args }

// owners stand in for the owners of python kernels: what each is known to be and answers.
type owners struct {
	mu      sync.Mutex
	seen    map[string]pykernel.Observation
	answers map[string]func(pykernel.Ask) (pykernel.Answer, error) // by kernel
	asked   []pykernel.Ask
	watched map[string][]func()
	stop    error
	restart error
}

func (o *owners) Observe(kernel string) (pykernel.Observation, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	seen, ok := o.seen[kernel]
	return seen, ok
}

func (o *owners) Watch(kernel string, changed func()) func() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.watched[kernel] = append(o.watched[kernel], changed)
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.watched[kernel] = o.watched[kernel][1:]
	}
}

func (o *owners) watchers(kernel string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.watched[kernel])
}

func (o *owners) Ask(_ context.Context, kernel string, a pykernel.Ask) (pykernel.Answer, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked = append(o.asked, a)
	if answer := o.answers[kernel]; answer != nil {
		return answer(a)
	}
	return pykernel.Answer{}, errors.New("it boots")
}

func (o *owners) StopJob(context.Context, string, string) error { return o.stop }

func (o *owners) Restart(_ context.Context, kernel string) (jobs, cells []string, err error) {
	return []string{"j1"}, []string{"c1"}, o.restart
}

// world is a store with a view on it.
type world struct {
	*view.View
	t      *testing.T
	store  neuron.Store
	fence  neuron.Fence
	owners *owners
	output string // folder
}

// onBoth runs a test on SQLite and on PostgreSQL.
func onBoth(t *testing.T, fn func(t *testing.T, w *world)) {
	t.Run("sqlite", func(t *testing.T) { fn(t, newWorld(t)) })
	t.Run("postgres", func(t *testing.T) {
		s, err := postgres.Open(t.Context(), postgrestest.Database(t), postgres.Options{})
		if err != nil {
			t.Fatal(err)
		}
		fn(t, newWorldOn(t, s))
	})
}

func newWorld(t *testing.T) *world {
	t.Helper()
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "soma.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return newWorldOn(t, s)
}

func newWorldOn(t *testing.T, s neuron.Store) *world {
	t.Helper()
	w := &world{store: s, t: t, owners: &owners{seen: map[string]pykernel.Observation{}, answers: map[string]func(pykernel.Ask) (pykernel.Answer, error){},
		watched: map[string][]func(){}}, output: filepath.Join(t.TempDir(), "output")}
	t.Cleanup(func() { _ = w.store.Close() })
	var err error
	if w.fence, err = w.store.Claim(t.Context(), "here"); err != nil {
		t.Fatal(err)
	}
	if several, ok := s.(*postgres.Store); ok { // this node is alone, and takes all places
		taken, err := several.Take(t.Context(), w.fence, neuron.AllPlaces())
		if err != nil {
			t.Fatal(err)
		}
		places := *w.fence.Places
		for p, how := range taken {
			places[p] = how.Epoch
		}
		w.fence.Places = &places
	}
	if err := os.Mkdir(w.output, 0o700); err != nil {
		t.Fatal(err)
	}
	w.View = view.New(view.Options{Reader: w.store, Owners: w.owners, Node: "here", Output: w.kept, OutputDir: w.output})
	return w
}

// kept is the output of a cell that has ended: ten bytes from the start and ten from the end of a thousand.
func (w *world) kept(_ context.Context, cell string, offset, _ int64) (wire.OutputPage, error) {
	p := wire.OutputPage{Cell: cell, Offset: offset, Size: 1000}
	switch {
	case offset < 10:
		p.Kept, p.Next, p.Text = true, 10, "head"
	case offset < 990:
		p.Next = 990
	default:
		p.Kept, p.EOF, p.Next, p.Text = true, true, 1000, "tail"
	}
	return p, nil
}

func (w *world) commit(ops ...neuron.Op) {
	w.t.Helper()
	if err := w.store.Commit(w.t.Context(), w.fence, []*neuron.Record{{Ops: ops}}); err != nil {
		w.t.Fatal(err)
	}
	w.Committed(ops)
}

var at = time.UnixMilli(1_700_000_000_000)

// branch makes a branch of a session with a process.
func (w *world) branch(session string, pid int) ident.ID {
	w.t.Helper()
	id := ident.Named("branch", session)
	w.commit(&statement{`insert into branch (id, session, name, created_at) values (?, ?, 'main', 0)`, []any{id[:], session}})
	if pid > 0 {
		w.commit(&statement{`insert into process (pid, owner, session, branch, parent, agent, model, workspace, state, reason, detail, since, exit_code, steps, cells, tokens, cost, estimated, created_at, ended_at)
values (?, 'me', ?, ?, 0, '', '', '/w', 'ready', '', '', 0, 0, 0, 0, 0, 0, 0, 0, null)`, []any{int64(pid), session, id[:]}})
	}
	return id
}

func (w *world) kernel(id string, branch ident.ID, session, node string, more ...neuron.Op) {
	w.t.Helper()
	w.commit(append([]neuron.Op{&pykernel.InsertKernel{ID: id, Owner: "me/session/" + session, Session: session, Branch: branch, Node: node,
		Workspace: "/w", Python: "/usr/bin/python3", Token: "t", At: at}}, more...)...)
}

func (w *world) cell(id, kernel, state string, body any) {
	w.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		w.t.Fatal(err)
	}
	branch := ident.Named("branch", "s")
	w.commit(&statement{`insert into cell (id, owner, session, branch, pid, kernel, code, timeout_ms, state, status, body, output_size, started_at)
values (?, 'me', 's', ?, 0, ?, '', 1, ?, '', ?, 0, 0)`, []any{id, branch[:], kernel, state, text}})
}

func code(err error) wire.Code {
	var e *wire.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// P-046, P-121: live kernels with what their owners know, others by their rows; what is not known is nil.
func TestKernels(t *testing.T) { onBoth(t, testKernels) }

func testKernels(t *testing.T, w *world) {
	a, b := w.branch("s", 7), w.branch("py", 0)
	w.kernel("k1", a, "s", "here", &pykernel.EndedKernel{ID: "k1", Reason: "it was ended", At: at})
	w.kernel("k2", a, "s", "here")
	w.kernel("k3", b, "py", "there", &pykernel.RunKernel{ID: "k3", OSPID: 5, At: at})
	w.kernel("k4", b, "py", "here")
	live := 2
	w.owners.seen["k2"] = pykernel.Observation{State: "detached", OSPID: os.Getpid(), Cells: []string{"c1"}, Live: &live, Jobs: []pykernel.Job{
		{ID: "j1", PID: 9, Command: "make", StartedAt: 1000}, {ID: "r1", Command: "far", Service: true}}}
	w.owners.seen["k4"] = pykernel.Observation{State: "waiting"}
	list, err := w.Kernels(t.Context(), false)
	if err != nil || len(list) != 3 || list[0].ID != "k2" || list[2].ID != "k4" {
		t.Fatalf("%+v, %v", list, err)
	}
	k := list[0]
	if k.PID != 7 || k.Branch != a.String() || k.State != "detached" || *k.Jobs != 2 || *k.Cells != 1 || k.Memory == nil || *k.Memory < 1<<20 || k.Node != "" {
		t.Errorf("%+v", k)
	}
	if k := list[1]; k.State != "attached" || k.OSPID != 5 || k.Jobs != nil || k.Cells != nil || k.Memory != nil {
		t.Errorf("of another node %+v", k)
	}
	if k := list[2]; k.State != "booting" || k.Jobs != nil || *k.Cells != 0 || k.Memory != nil {
		t.Errorf("that waits for its turn %+v", k)
	}
	all, err := w.Kernels(t.Context(), true)
	if err != nil || len(all) != 4 || all[0].ID != "k1" || all[0].State != "ended" || all[0].Reason != "it was ended" || all[0].EndedAt == nil || all[0].Jobs != nil {
		t.Errorf("%+v, %v", all, err)
	}

	v, err := w.Kernel(t.Context(), a.String())
	if err != nil || v.Kernel.ID != "k2" || *v.LiveJobs != 2 || len(*v.Running) != 2 {
		t.Fatalf("%+v, %v", v, err)
	}
	if r := *v.Running; *r[0].PID != 9 || r[0].Started != 1000 || r[1].PID != nil || !r[1].Service {
		t.Errorf("%+v", r)
	}
	if v, err := w.Kernel(t.Context(), b.String()); err != nil || v.Kernel.ID != "k4" || v.LiveJobs != nil || v.Running != nil {
		t.Errorf("one of which nothing is known: %+v, %v", v, err)
	}
	c := w.branch("none", 0)
	if v, err := w.Kernel(t.Context(), c.String()); err != nil || v.Kernel != nil || *v.LiveJobs != 0 || *v.Running == nil {
		t.Errorf("none: %+v, %v", v, err)
	}
	for _, branch := range []string{"x", ident.Named("no", "where").String()} {
		if _, err := w.Kernel(t.Context(), branch); code(err) != wire.NotFound {
			t.Errorf("branch %s: %v", branch, err)
		}
	}
	if len(w.owners.asked) > 0 {
		t.Errorf("kernels were asked: %+v", w.owners.asked)
	}
}

// P-048: of a python kernel that has told nothing yet a look waits for its first word, within a bound, and no longer than its caller.
func TestFirstWord(t *testing.T) {
	w := newWorld(t)
	a := w.branch("s", 1)
	w.kernel("k1", a, "s", "here")
	see := func(live *int) {
		w.owners.mu.Lock()
		w.owners.seen["k1"] = pykernel.Observation{State: "detached", Live: live}
		told := slices.Clone(w.owners.watched["k1"])
		w.owners.mu.Unlock()
		for _, changed := range told {
			changed()
		}
	}
	look := func(ctx context.Context) <-chan wire.KernelView {
		got := make(chan wire.KernelView, 1)
		go func() {
			v, err := w.Kernel(ctx, a.String())
			if err != nil {
				t.Error(err)
			}
			got <- v
		}()
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for late := time.After(30 * time.Second); w.owners.watchers("k1") == 0; {
			select {
			case <-tick.C:
			case <-late:
				t.Fatal("it does not wait")
			}
		}
		return got
	}
	see(nil)
	got := look(t.Context())
	see(nil) // news, but not of its jobs
	two := 2
	see(&two)
	if v := <-got; v.LiveJobs == nil || *v.LiveJobs != 2 {
		t.Errorf("after the first word %+v", v)
	}
	see(nil)
	ctx, cancel := context.WithCancel(t.Context())
	got = look(ctx)
	cancel()
	if v := <-got; v.LiveJobs != nil || v.Kernel.State != "detached" {
		t.Errorf("for a caller that went away %+v", v)
	}
	if v := <-look(t.Context()); v.LiveJobs != nil || v.Kernel.State != "detached" {
		t.Errorf("of one that says nothing %+v", v)
	}
	if _, err := w.Jobs(t.Context(), a.String()); code(err) != wire.Unreachable {
		t.Errorf("jobs of one that says nothing: %v", err)
	}
	listed := make(chan error, 1)
	go func() {
		_, err := w.Jobs(t.Context(), a.String())
		listed <- err
	}()
	for tick := time.NewTicker(time.Millisecond); w.owners.watchers("k1") == 0 && len(listed) == 0; {
		<-tick.C
	}
	see(&two)
	if err := <-listed; err != nil {
		t.Errorf("jobs after the first word: %v", err)
	}
	if n := w.owners.watchers("k1"); n != 0 {
		t.Errorf("%d still listen", n)
	}
}

// P-049, P-051: the book of jobs is the kernel's; without one it is read from the rows, and a stale one is not asked.
func TestRecentJobs(t *testing.T) { onBoth(t, testRecentJobs) }

func testRecentJobs(t *testing.T, w *world) {
	a := w.branch("s", 1)
	w.kernel("k1", a, "s", "here")
	if _, err := w.RecentJobs(t.Context(), a.String()); code(err) != wire.Unreachable {
		t.Errorf("one that boots: %v", err)
	}
	long, ended := strings.Repeat("é", wire.MaxCommand+5), int64(2000)
	w.owners.answers["k1"] = func(q pykernel.Ask) (pykernel.Answer, error) {
		var rows []pykernel.JobRow
		for i := range wire.MaxRecentJobs + 1 {
			rows = append(rows, pykernel.JobRow{ID: fmt.Sprint("j", i), Command: long, State: "exited", StartedAt: 1000, EndedAt: &ended, Bytes: 3})
		}
		return pykernel.Answer{OK: q.Type == pykernel.FrameJobList, Jobs: rows}, nil
	}
	list, err := w.RecentJobs(t.Context(), a.String())
	if err != nil || len(list) != wire.MaxRecentJobs || list[0].ID != "j0" || list[0].Ended != 2000 || list[0].Command != strings.Repeat("é", wire.MaxCommand) {
		t.Errorf("%d jobs, %v", len(list), err)
	}
	asked := len(w.owners.asked)
	w.owners.seen["k1"] = pykernel.Observation{State: "attached", Stale: true}
	if list, err := w.RecentJobs(t.Context(), a.String()); err != nil || len(list) != 0 || len(w.owners.asked) != asked {
		t.Errorf("a stale one: %+v, %v", list, err)
	}
	exit := 3
	w.commit(&pykernel.InsertJob{Kernel: "k1", Session: "s", Job: pykernel.JobStart{Job: "j1", Command: "make", StartedAt: 1000, Cell: "c1"}},
		&pykernel.EndJob{Kernel: "k1", Session: "s", Job: pykernel.JobEnd{Job: "j1", ExitCode: &exit, EndedAt: 5000, Bytes: 7}},
		&pykernel.InsertJob{Kernel: "k1", Session: "s", Job: pykernel.JobStart{Job: "j2", Command: "serve", StartedAt: 2000, Service: true}},
		&pykernel.LoseJobs{Kernel: "k1", At: time.UnixMilli(6000)}, &pykernel.EndedKernel{ID: "k1", At: at})
	list, err = w.RecentJobs(t.Context(), a.String())
	if err != nil || len(list) != 2 || list[0].ID != "j2" || list[0].State != wire.JobLost || !list[0].Service || list[0].Ended != 6000 || list[0].ExitCode != nil {
		t.Fatalf("%+v, %v", list, err)
	}
	if j := list[1]; j.ID != "j1" || *j.ExitCode != 3 || j.Started != 1000 || j.Ended != 5000 || j.Bytes != 7 || j.Cell != "c1" {
		t.Errorf("%+v", j)
	}
	if _, err := w.JobOutput(t.Context(), a.String(), "j1", nil, 100); code(err) != wire.OutputLost {
		t.Errorf("output of a kernel that has ended: %v", err)
	}
	if _, err := w.JobOutput(t.Context(), a.String(), "j9", nil, 100); code(err) != wire.JobNotFound {
		t.Errorf("of no job: %v", err)
	}
}

// P-050, P-052: refusals of a kernel keep their meaning.
func TestJobOutputAndStop(t *testing.T) {
	w := newWorld(t)
	a := w.branch("s", 1)
	w.kernel("k1", a, "s", "here")
	refuse := ""
	w.owners.answers["k1"] = func(q pykernel.Ask) (pykernel.Answer, error) {
		if refuse != "" {
			return pykernel.Answer{Code: refuse, Error: "it says no"}, nil
		}
		return pykernel.Answer{OK: true, Page: &pykernel.Page{Offset: 4, NextOffset: 6, Size: 9, Running: true, Text: "é"}}, nil
	}
	from := int64(4)
	p, err := w.JobOutput(t.Context(), a.String(), "j1", &from, 5)
	if err != nil || p != (wire.JobPage{Job: "j1", Offset: 4, Next: 6, Size: 9, Running: true, Text: "é"}) {
		t.Errorf("%+v, %v", p, err)
	}
	if q := w.owners.asked[0]; q.Type != pykernel.FrameJobRead || q.Job != "j1" || *q.Offset != 4 || q.Limit != 5 {
		t.Errorf("asked %+v", q)
	}
	for reply, want := range map[string]wire.Code{
		pykernel.CodeJobNotFound: wire.JobNotFound, pykernel.CodeOutputLost: wire.OutputLost, pykernel.CodeInvalid: wire.BadRequest, pykernel.CodeBusy: wire.Unreachable,
	} {
		refuse = reply
		if _, err := w.JobOutput(t.Context(), a.String(), "j1", nil, 5); code(err) != want {
			t.Errorf("%s became %v", reply, err)
		}
	}
	for stop, want := range map[error]wire.Code{view.ErrNoJob: wire.JobNotFound, errors.New("silence"): wire.Unconfirmed} {
		w.owners.stop = stop
		if _, err := w.StopJob(t.Context(), a.String(), "j1"); code(err) != want {
			t.Errorf("%v became %v", stop, err)
		}
	}
	w.owners.stop = nil
	if done, err := w.StopJob(t.Context(), a.String(), "j1"); err != nil || done.Job != "j1" {
		t.Errorf("%+v, %v", done, err)
	}
	if done, err := w.Restart(t.Context(), a.String()); err != nil || done.Old != "k1" || !slices.Equal(done.Jobs, []string{"j1"}) || !slices.Equal(done.Cells, []string{"c1"}) {
		t.Errorf("%+v, %v", done, err)
	}
	w.owners.restart = errors.New("it lives on")
	if _, err := w.Restart(t.Context(), a.String()); code(err) != wire.NotRestarted {
		t.Errorf("a restart that fails: %v", err)
	}
	b := w.branch("none", 0)
	if _, err := w.StopJob(t.Context(), b.String(), "j1"); code(err) != wire.JobNotFound {
		t.Errorf("without a kernel: %v", err)
	}
	if done, err := w.Restart(t.Context(), b.String()); err != nil || done.Old != "" {
		t.Errorf("without a kernel: %+v, %v", done, err)
	}
}

// P-048: who listens to a branch hears of its kernel of now, of the next one, and after his end of none.
func TestWatchKernel(t *testing.T) {
	w := newWorld(t)
	a, b := w.branch("s", 1), w.branch("other", 0)
	w.kernel("k1", a, "s", "here")
	heard := make(chan struct{}, 16)
	end, err := w.WatchKernel(t.Context(), a.String(), func() { heard <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	count := func() (n int) {
		for len(heard) > 0 {
			<-heard
			n++
		}
		return n
	}
	w.owners.watched["k1"][0]()
	if n := count(); n != 1 {
		t.Errorf("heard of %d changes", n)
	}
	w.kernel("k2", b, "other", "here")
	if n := count(); n != 0 {
		t.Errorf("heard %d times of another branch", n)
	}
	w.kernel("k3", a, "s", "here")
	if n := count(); n != 1 || w.owners.watchers("k1") != 0 || w.owners.watchers("k3") != 1 {
		t.Errorf("heard of the next one %d times, watches %v", n, w.owners.watched)
	}
	w.commit(&pykernel.EndedKernel{ID: "k3", At: at})
	if n := count(); n != 1 {
		t.Errorf("heard of the end %d times", n)
	}
	end()
	w.kernel("k4", a, "s", "here")
	if n := count(); n != 0 || w.owners.watchers("k3")+w.owners.watchers("k4") != 0 {
		t.Errorf("heard after the end %d times, watches %v", n, w.owners.watched)
	}
	if _, err := w.WatchKernel(t.Context(), "x", func() {}); code(err) != wire.NotFound {
		t.Errorf("no branch: %v", err)
	}
}

// P-131, P-062: the output of a cell comes from its kernel while it runs, then from the store, and where that has none from the
// file; none but a regular file of the folder of outputs is ever read.
func TestCellOutput(t *testing.T) {
	w := newWorld(t)
	w.kernel("k1", w.branch("s", 1), "s", "here")
	w.cell("run", "k1", "started", map[string]any{})
	refuse := ""
	w.owners.answers["k1"] = func(q pykernel.Ask) (pykernel.Answer, error) {
		switch {
		case q.Offset == nil:
			return pykernel.Answer{OK: true, Page: &pykernel.Page{Offset: 900, NextOffset: 950, Size: 950, Running: true}}, nil
		case refuse != "":
			return pykernel.Answer{Code: refuse, Error: "no"}, nil
		}
		return pykernel.Answer{OK: true, Page: &pykernel.Page{Offset: *q.Offset, NextOffset: *q.Offset + 2, Size: 8, Running: true, Text: "hi"}}, nil
	}
	page := func(cell string, offset, limit int64) wire.OutputPage {
		t.Helper()
		p, err := w.CellOutput(t.Context(), cell, offset, limit)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if p := page("run", 3, 1<<20); p != (wire.OutputPage{Cell: "run", Offset: 3, Next: 5, Size: 8, Kept: true, Text: "hi"}) {
		t.Errorf("of one that runs %+v", p)
	}
	if q := w.owners.asked[0]; q.Type != pykernel.FrameCellRead || q.Limit != pykernel.MaxPage {
		t.Errorf("asked %+v", q)
	}
	for reply, want := range map[string]wire.OutputPage{
		pykernel.CodeCellNotFound: {Cell: "run", Offset: 3, Next: 3, Kept: true}, pykernel.CodeBusy: {Cell: "run", Offset: 3, Next: 3, Kept: true},
		pykernel.CodeOutputLost: {Cell: "run", Offset: 3, Next: 900, Size: 950},
	} {
		refuse = reply
		if p := page("run", 3, 10); p != want {
			t.Errorf("%s became %+v", reply, p)
		}
	}

	spill := func(id, path string, size int64) {
		w.cell(id, "k1", "ended", map[string]any{"spill": pykernel.Spill{Path: path, Size: size}})
	}
	file := filepath.Join(w.output, "one.txt")
	text := strings.Repeat("0123456789", 2) + "ééééé" + "\xff\xfe" + strings.Repeat("x", 500)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	spill("spilled", file, int64(len(text)))
	if p := page("spilled", 0, 100); p.Text != "head" {
		t.Errorf("the beginning is %+v", p)
	}
	if p := page("spilled", 15, 8); !p.Kept || p.Text != "56789é" || p.Next != 22 || p.EOF {
		t.Errorf("from the file comes %+v", p)
	}
	if p := page("spilled", 24, 1); p.Text != "éé" || p.Next != 28 { // a character at least
		t.Errorf("from the file comes %+v", p)
	}
	if p := page("spilled", 28, 6); p.Text != "é??xx" && p.Text != "é??x" || !p.Kept {
		t.Errorf("what is no UTF-8 becomes %+v", p)
	}
	if p := page("spilled", 600, 10); p.Kept || p.Next != 990 {
		t.Errorf("past the file comes %+v", p)
	}
	outside := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(outside, []byte(strings.Repeat("s", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(w.output, "link")
	if err := os.Symlink(outside, link); err != nil {
		t.Fatal(err)
	}
	inner, fifo := filepath.Join(w.output, "inner"), filepath.Join(w.output, "fifo")
	if err := errors.Join(os.Symlink("one.txt", inner), syscall.Mkfifo(fifo, 0o600)); err != nil {
		t.Fatal(err)
	}
	for i, path := range []string{outside, link, inner, fifo, w.output, "/proc/self/environ", "secret", filepath.Join(w.output, "gone")} {
		id := fmt.Sprint("evil", i)
		spill(id, path, 100)
		if p := page(id, 15, 8); p.Kept || p.Text != "" || p.Next != 990 {
			t.Errorf("%s was read: %+v", path, p)
		}
	}
	if _, err := w.CellOutput(t.Context(), "none", 0, 1); code(err) != wire.NotFound {
		t.Errorf("no cell: %v", err)
	}
}

// P-064, P-066: images and traces of a cell are found by it, and what is not kept is said.
func TestImagesAndTraces(t *testing.T) { onBoth(t, testImagesAndTraces) }

func testImagesAndTraces(t *testing.T, w *world) {
	w.branch("s", 1)
	kept, lost := ident.Named("image", "1"), ident.Named("image", "2")
	w.commit(&pykernel.KeepOutput{ID: kept, Bytes: []byte("PNG")})
	w.cell("c", "k1", "ended", map[string]any{"images": []pykernel.Image{{Media: "image/png", Name: "a.png", Content: kept}, {Media: "image/png", Content: lost}}})
	image, bytes, err := w.CellImage(t.Context(), "c", 1)
	if err != nil || string(bytes) != "PNG" || image != (wire.CellImage{N: 1, Media: "image/png", Name: "a.png", Size: 3}) {
		t.Errorf("%+v, %q, %v", image, bytes, err)
	}
	for _, n := range []int{0, 2, 3} {
		if _, _, err := w.CellImage(t.Context(), "c", n); code(err) != wire.NotFound {
			t.Errorf("image %d: %v", n, err)
		}
	}
	if trace, err := w.CellTrace(t.Context(), "c"); err != nil || len(trace.Changes) != 0 {
		t.Errorf("%+v, %v", trace, err)
	}
	body, _ := json.Marshal([]pykernel.Change{{Path: "a", Kind: "changed", Diff: "-1\n+2\n", Truncated: true}})
	w.commit(&pykernel.InsertTrace{Cell: "c", Session: "s", Kernel: "k1", Body: body, At: at})
	trace, err := w.CellTrace(t.Context(), "c")
	if err != nil || len(trace.Changes) != 1 || trace.Changes[0] != (wire.TraceChange{Path: "a", Kind: "changed", Diff: "-1\n+2\n", Truncated: true}) {
		t.Errorf("%+v, %v", trace, err)
	}
	if _, err := w.CellTrace(t.Context(), "none"); code(err) != wire.NotFound {
		t.Errorf("no cell: %v", err)
	}
}

// A completion is the kernel's, bounded; without a kernel it is empty.
func TestComplete(t *testing.T) {
	w := newWorld(t)
	a := w.branch("s", 1)
	if c, err := w.Complete(t.Context(), a.String(), wire.Complete{Text: "ab", Cursor: 2}); err != nil || c.Start != 2 || len(c.Names) != 0 {
		t.Errorf("%+v, %v", c, err)
	}
	w.kernel("k1", a, "s", "here")
	w.owners.answers["k1"] = func(q pykernel.Ask) (pykernel.Answer, error) {
		return pykernel.Answer{OK: *q.Text == "ab" && *q.Cursor == 1, Start: 0, Names: slices.Repeat([]string{"abs"}, wire.MaxNames+1)}, nil
	}
	if c, err := w.Complete(t.Context(), a.String(), wire.Complete{Text: "ab", Cursor: 1}); err != nil || len(c.Names) != wire.MaxNames {
		t.Errorf("%d names, %v", len(c.Names), err)
	}
}

// hasty are owners that bring a new python kernel just before somebody begins to watch the old one.
type hasty struct {
	*owners
	bring func()
}

func (o *hasty) Watch(kernel string, changed func()) func() {
	if bring := o.bring; bring != nil {
		o.bring = nil
		bring()
	}
	return o.owners.Watch(kernel, changed)
}

// Who begins to watch a branch while its python kernel is replaced watches the new one.
func TestWatchOfAKernelThatIsReplaced(t *testing.T) {
	w := newWorld(t)
	branch := w.branch("s", 0)
	w.kernel("k1", branch, "s", "here")
	o := &hasty{owners: w.owners}
	v := view.New(view.Options{Reader: w.store, Owners: o, Node: "here", Output: w.kept, OutputDir: w.output})
	o.bring = func() { v.Committed([]neuron.Op{&pykernel.InsertKernel{ID: "k2", Branch: branch}}) }
	end, err := v.WatchKernel(t.Context(), branch.String(), func() {})
	if err != nil {
		t.Fatal(err)
	}
	if old, now := w.owners.watchers("k1"), w.owners.watchers("k2"); old != 0 || now != 1 {
		t.Errorf("%d watch the old one, %d the new one", old, now)
	}
	end()
	if n := w.owners.watchers("k2"); n != 0 {
		t.Errorf("%d watch after the end", n)
	}
}
