package pykerneltest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/engine"
	"soma/internal/pykernel"
	"soma/internal/pykernel/supervise"
	"soma/internal/store/sqlite"
)

// Python is the interpreter of the tests.
const Python = "/usr/bin/python3"

// Patience bounds every wait of a test.
const Patience = 30 * time.Second

// request asks the owner neuron to write operations that the test has laid down under an id.
type request struct{ ID string }

var (
	requestType    = neuron.NewType[request]("pykerneltest.request.v1")
	endedType      = neuron.NewType[pykernel.CellEnded](pykernel.CellEndedAlias)
	backgroundType = neuron.NewType[pykernel.CellBackgrounded](pykernel.CellBackgroundedAlias)
	jobType        = neuron.NewType[pykernel.JobEnded](pykernel.JobEndedAlias)
	seenType       = neuron.NewType[pykernel.ResultsSeen](pykernel.SeenAlias)
	goneType       = neuron.NewType[pykernel.Gone](pykernel.GoneAlias)
)

// Home is one home with at most one running daemon's worth of parts. Its methods fail the test on error.
type Home struct {
	Dir       string
	Workspace string
	Store     *sqlite.Store
	Engine    *engine.Engine
	Sup       *supervise.Supervisor
	// Change is applied to the options of every supervisor that Start makes.
	Change func(*supervise.Options)
	// Hold, if set, is asked before an outcome is handled: its error makes the handler fail, so that the engine retries.
	Hold func(pykernel.CellEnded) error

	t       testing.TB
	log     *slog.Logger
	mu      sync.Mutex
	ops     map[string]func() []neuron.Op
	ended   map[string][]pykernel.CellEnded        // committed outcomes by cell
	gone    map[string][]pykernel.Gone             // by kernel
	rear    map[string][]pykernel.CellBackgrounded // by cell
	jobs    map[string][]pykernel.JobEnded         // by job
	read    []pykernel.ResultsSeen
	output  map[string]string // live output by cell
	changed chan struct{}
	stop    context.CancelFunc
}

// New returns a home with running parts, which end with the test together with all python kernels of the home.
func New(t testing.TB, change func(*supervise.Options)) *Home {
	t.Helper()
	return At(t, filepath.Join(t.TempDir(), "home"), change)
}

// At is New with the home at dir, which must not exist.
func At(t testing.TB, dir string, change func(*supervise.Options)) *Home {
	t.Helper()
	h := &Home{
		Dir: dir, Workspace: t.TempDir(), Change: change, t: t, ops: map[string]func() []neuron.Op{},
		ended: map[string][]pykernel.CellEnded{}, gone: map[string][]pykernel.Gone{}, output: map[string]string{},
		rear: map[string][]pykernel.CellBackgrounded{}, jobs: map[string][]pykernel.JobEnded{},
		changed: make(chan struct{}),
	}
	h.log = slog.New(slog.NewTextHandler(writer{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if err := os.MkdirAll(h.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	h.Start()
	t.Cleanup(func() {
		if h.stop == nil {
			h.Start()
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), Patience)
		defer cancel()
		if err := h.Sup.EndAll(ctx); err != nil {
			t.Errorf("end all: %v", err)
		}
		h.Stop()
	})
	return h
}

type writer struct{ t testing.TB }

func (w writer) Write(b []byte) (int, error) {
	w.t.Logf("%s", b[:len(b)-1])
	return len(b), nil
}

// Start starts the parts, as a new daemon does.
func (h *Home) Start() {
	h.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(h.t.Context()))
	h.stop = cancel
	var err error
	h.Store, err = sqlite.Open(ctx, filepath.Join(h.Dir, "soma.db"), sqlite.Options{Sequences: []neuron.Sequence{{
		Name: pykernel.FrameSequence, Last: pykernel.FrameSequenceLast, Save: pykernel.FrameSequenceSave,
	}}})
	h.must(err)
	kind := neuron.NewKind("owner")
	neuron.Handle(kind, requestType, func(t *neuron.Turn, r request) error {
		h.mu.Lock()
		make := h.ops[r.ID]
		h.mu.Unlock()
		if make == nil {
			return neuron.Settle(errors.New("no operations"))
		}
		t.Write(make()...)
		return nil
	})
	neuron.Handle(kind, endedType, func(_ *neuron.Turn, m pykernel.CellEnded) error {
		if h.Hold != nil {
			return h.Hold(m)
		}
		return nil
	})
	neuron.Handle(kind, goneType, func(*neuron.Turn, pykernel.Gone) error { return nil })
	neuron.Handle(kind, backgroundType, func(*neuron.Turn, pykernel.CellBackgrounded) error { return nil })
	neuron.Handle(kind, jobType, func(*neuron.Turn, pykernel.JobEnded) error { return nil })
	neuron.Handle(kind, seenType, func(*neuron.Turn, pykernel.ResultsSeen) error { return nil })
	var sup *supervise.Supervisor
	h.Engine, err = engine.New(engine.Options{
		Store: h.Store, Kinds: []*neuron.Kind{kind}, Types: []string{
			requestType.Alias(), endedType.Alias(), goneType.Alias(), backgroundType.Alias(), jobType.Alias(), seenType.Alias(),
		},
		Generation: h.Store.Generation(), Log: h.log, Fatal: func(err error) { h.t.Errorf("engine: %v", err) },
		Committed: func(group []*neuron.Record) {
			for _, r := range group {
				h.record(r)
				sup.Committed(r.Ops)
			}
		},
	})
	h.must(err)
	o := supervise.Options{
		RunDir: filepath.Join(h.Dir, "run"), BundleDir: filepath.Join(h.Dir, "kernel-bundles"), Node: "local", Neurons: h.Engine,
		Reader: h.Store, Log: h.log, Env: Env,
		Output: func(_, cell string, _ int64, text string) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.output[cell] += text
			h.rouse()
		},
	}
	if h.Change != nil {
		h.Change(&o)
	}
	sup, err = supervise.New(o)
	h.must(err)
	h.Sup = sup
	h.must(sup.Start(ctx))
	h.must(h.Engine.Start(ctx))
}

// Env is the environment of the kernels of tests.
func Env() []string { return []string{"PATH=/usr/bin:/bin", "LANG=C.UTF-8", "HOME=/nonexistent"} }

func (h *Home) record(r *neuron.Record) {
	if r.Turn == nil {
		return
	}
	var e neuron.Entry
	if err := json.Unmarshal(r.Turn.Incoming, &e); err != nil {
		h.t.Errorf("journal entry: %v", err)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch e.Alias {
	case pykernel.CellEndedAlias:
		m, err := endedType.Decode(h.payload(&e))
		if err != nil {
			h.t.Errorf("outcome: %v", err)
		}
		h.ended[m.Cell] = append(h.ended[m.Cell], m)
	case pykernel.GoneAlias:
		m, err := goneType.Decode(h.payload(&e))
		if err != nil {
			h.t.Errorf("gone: %v", err)
		}
		h.gone[m.Kernel] = append(h.gone[m.Kernel], m)
	case pykernel.CellBackgroundedAlias:
		m, err := backgroundType.Decode(h.payload(&e))
		if err != nil {
			h.t.Errorf("backgrounded: %v", err)
		}
		h.rear[m.Cell] = append(h.rear[m.Cell], m)
	case pykernel.JobEndedAlias:
		m, err := jobType.Decode(h.payload(&e))
		if err != nil {
			h.t.Errorf("job: %v", err)
		}
		h.jobs[m.Job] = append(h.jobs[m.Job], m)
	case pykernel.SeenAlias:
		m, err := seenType.Decode(h.payload(&e))
		if err != nil {
			h.t.Errorf("seen: %v", err)
		}
		h.read = append(h.read, m)
	}
	h.rouse()
}

// payload returns what was delivered, also where it travels by reference.
func (h *Home) payload(e *neuron.Entry) json.RawMessage {
	if e.Content.IsZero() {
		return e.Payload
	}
	return h.Content(e.Content)
}

// Content reads a content row.
func (h *Home) Content(id ident.ID) (b []byte) {
	err := h.Store.Query(context.WithoutCancel(h.t.Context()), `select bytes from content where id = ?`, []any{id[:]},
		func(scan func(...any) error) error { return scan(&b) })
	if err != nil {
		h.t.Errorf("content: %v", err)
	}
	return b
}

// rouse wakes those who wait; the caller holds mu.
func (h *Home) rouse() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// Stop stops the parts as a daemon does that ends in order: python kernels live on.
func (h *Home) Stop() {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.t.Context()), Patience)
	defer cancel()
	h.must(h.Sup.Stop(ctx))
	h.must(h.Engine.Stop(ctx))
	h.must(h.Store.Close())
	h.stop()
	h.stop = nil
}

// Restart stops the parts and starts new ones.
func (h *Home) Restart() {
	h.t.Helper()
	h.Stop()
	h.Start()
}

func (h *Home) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// Commit writes operations by a turn of the owner neuron key. It returns the turn's error; make is called once an attempt.
func (h *Home) Commit(key string, make func() []neuron.Op) error {
	id := ident.New(time.Now()).String()
	h.mu.Lock()
	h.ops[id] = make
	h.mu.Unlock()
	ctx, cancel := context.WithTimeout(h.t.Context(), Patience)
	defer cancel()
	return engine.Fire(ctx, h.Engine, neuron.ID{Owner: "me", Kind: "owner", Key: key}, requestType, request{id})
}

// Insert returns the row of a new python kernel.
func (h *Home) Insert(owner string) *pykernel.InsertKernel {
	id := ident.New(time.Now())
	return &pykernel.InsertKernel{
		ID: id.String(), Owner: "me/owner/" + owner, Session: "s-" + owner, Branch: id, Node: "local", Workspace: h.Workspace,
		Python: Python, Token: fmt.Sprintf("%064x", id), At: time.Now(),
	}
}

// Execute returns the frame of a new cell, and the cell's id.
func (h *Home) Execute(kernel, code string, timeout time.Duration) (*pykernel.AppendFrame, string) {
	cell := ident.New(time.Now()).String()
	f, err := pykernel.NewFrame(kernel, cell, pykernel.Execute{
		Type: pykernel.FrameExecute, Cell: cell, Code: code, TimeoutMS: timeout.Milliseconds(),
	}, time.Now())
	h.must(err)
	return f, cell
}

// RunBehind commits one more cell, which goes on in the background after a time.
func (h *Home) RunBehind(owner, kernel, code string, timeout, behind time.Duration) (cell string) {
	h.t.Helper()
	h.must(h.Commit(owner, func() []neuron.Op {
		cell = ident.New(time.Now()).String()
		f, err := pykernel.NewFrame(kernel, cell, pykernel.Execute{
			Type: pykernel.FrameExecute, Cell: cell, Code: code, TimeoutMS: timeout.Milliseconds(), Origin: pykernel.OriginModel,
			BackgroundMS: behind.Milliseconds(),
		}, time.Now())
		h.must(err)
		return []neuron.Op{f}
	}))
	return cell
}

// Open commits a python kernel of the neuron owner with its first cell.
func (h *Home) Open(owner, code string) (kernel, cell string) {
	h.t.Helper()
	k := h.Insert(owner)
	var id string
	h.must(h.Commit(owner, func() []neuron.Op {
		row := *k
		f, c := h.Execute(k.ID, code, time.Minute)
		id = c
		return []neuron.Op{&row, f}
	}))
	return k.ID, id
}

// Run commits one more cell.
func (h *Home) Run(owner, kernel, code string, timeout time.Duration) (cell string) {
	h.t.Helper()
	h.must(h.Commit(owner, func() []neuron.Op {
		f, c := h.Execute(kernel, code, timeout)
		cell = c
		return []neuron.Op{f}
	}))
	return cell
}

// Interrupt commits an interrupt frame.
func (h *Home) Interrupt(owner, kernel, cell string) {
	h.t.Helper()
	h.must(h.Commit(owner, func() []neuron.Op {
		f, err := pykernel.NewFrame(kernel, cell, pykernel.Interrupt{Type: pykernel.FrameInterrupt, Cell: cell}, time.Now())
		h.must(err)
		return []neuron.Op{f}
	}))
}

// Outcome waits for the committed outcome of a cell.
func (h *Home) Outcome(cell string) (m pykernel.CellEnded) {
	h.t.Helper()
	h.Await("the outcome of cell "+cell, func() bool {
		if len(h.ended[cell]) == 0 {
			return false
		}
		m = h.ended[cell][0]
		return true
	})
	return m
}

// Outcomes returns how often a cell's outcome was committed.
func (h *Home) Outcomes(cell string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.ended[cell])
}

// Gone waits until the owner was told that the python kernel is gone.
func (h *Home) Gone(kernel string) (m pykernel.Gone) {
	h.t.Helper()
	h.Await("the end of kernel "+kernel, func() bool {
		if len(h.gone[kernel]) == 0 {
			return false
		}
		m = h.gone[kernel][0]
		return true
	})
	return m
}

// Backgrounded waits until the owner was told that a cell goes on in the background, and returns how often it was.
func (h *Home) Backgrounded(cell string) (all []pykernel.CellBackgrounded) {
	h.t.Helper()
	h.Await("the background of cell "+cell, func() bool { all = slices.Clone(h.rear[cell]); return len(all) > 0 })
	return all
}

// BackgroundedTimes returns how often the owner was told that a cell goes on in the background.
func (h *Home) BackgroundedTimes(cell string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.rear[cell])
}

// JobEnded waits until the owner was told of the end of a job, and returns what it was told.
func (h *Home) JobEnded(job string) (all []pykernel.JobEnded) {
	h.t.Helper()
	h.Await("the end of job "+job, func() bool { all = slices.Clone(h.jobs[job]); return len(all) > 0 })
	return all
}

// JobsEnded returns how often owners were told of the end of a job.
func (h *Home) JobsEnded(job string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.jobs[job])
}

// Read waits until the owners were told n times what was read.
func (h *Home) Read(n int) (all []pykernel.ResultsSeen) {
	h.t.Helper()
	h.Await("what was read", func() bool { all = slices.Clone(h.read); return len(all) >= n })
	return all
}

// Shown waits until the cell's live output holds text.
func (h *Home) Shown(cell, text string) {
	h.t.Helper()
	h.Await(fmt.Sprintf("output %q", text), func() bool { return strings.Contains(h.output[cell], text) })
}

// Await waits until ok, which is called under a lock after each outcome and output.
func (h *Home) Await(what string, ok func() bool) {
	h.t.Helper()
	patience := time.NewTimer(Patience)
	defer patience.Stop()
	for {
		h.mu.Lock()
		done, changed := ok(), h.changed
		h.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-patience.C:
			h.t.Fatalf("%s did not come; kernels: %+v", what, h.Sup.List())
		}
	}
}

// Attached waits until the python kernel is attached.
func (h *Home) Attached(kernel string) {
	h.t.Helper()
	h.Until("kernel "+kernel+" attached", func() bool {
		return slices.ContainsFunc(h.Sup.List(), func(s supervise.Status) bool { return s.ID == kernel && s.State == "attached" })
	})
}

// Until looks at ok again and again, for what announces itself to nobody.
func (h *Home) Until(what string, ok func() bool) {
	h.t.Helper()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	patience := time.NewTimer(Patience)
	defer patience.Stop()
	for !ok() {
		select {
		case <-look.C:
		case <-patience.C:
			h.t.Fatalf("%s: not within %s; kernels: %+v", what, Patience, h.Sup.List())
		}
	}
}

// Count counts rows.
func (h *Home) Count(sql string, args ...any) (n int) {
	h.t.Helper()
	h.must(h.Store.Query(h.t.Context(), sql, args, func(scan func(...any) error) error { return scan(&n) }))
	return n
}
