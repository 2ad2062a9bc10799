package process_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"soma/internal/agent/price"
	"soma/internal/neuron"
	"soma/internal/neuron/engine"
	"soma/internal/process"
	"soma/internal/pykernel"
	"soma/internal/pykernel/pykerneltest"
	"soma/internal/pykernel/supervise"
	"soma/internal/store/sqlite"
	"soma/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = pykerneltest.Patience

// world is one home with the parts of a daemon that processes live on: real store, engine, and where asked for real python
// kernels. The models are scripts.
type world struct {
	t      testing.TB
	dir    string
	folder string // the workspace
	stage  *stage
	python bool
	change func(*process.Options)
	kernel func(*supervise.Options)

	store  *cutStore
	engine *engine.Engine
	host   *process.Host
	sup    *supervise.Supervisor

	mu      sync.Mutex
	events  []wire.Event // all that were committed, in commit order
	live    []wire.DeltaEvent
	changed chan struct{}
	places  map[neuron.Place]bool // of all committed turns and of what they sent
	dead    bool                  // the store was cut off
	runs    bool
	wrote   map[string]map[string]int // by table, then by kind of neuron, "" without a turn: how many rows
}

// option changes a world before it starts.
type option func(*world)

func withPython(w *world) { w.python = true }

func withHost(change func(*process.Options)) option { return func(w *world) { w.change = change } }

// newWorld returns a running world; scripts are YAML by the name of the model.
func newWorld(t testing.TB, scripts map[string]string, options ...option) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), folder: t.TempDir(), stage: newStage(t, scripts), changed: make(chan struct{}), places: map[neuron.Place]bool{}}
	for _, o := range options {
		o(w)
	}
	w.start()
	t.Cleanup(func() {
		if !w.runs {
			w.start()
		}
		if w.python {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
			defer cancel()
			if err := w.sup.EndAll(ctx); err != nil {
				t.Errorf("end all: %v", err)
			}
		}
		w.stop()
	})
	return w
}

// cutStore is a store that a test can cut off: from then on it commits nothing, as if the daemon had been killed.
type cutStore struct {
	*sqlite.Store
	left atomic.Int64 // commits until the cut
}

const never = 1 << 40

func (s *cutStore) Commit(ctx context.Context, fence neuron.Fence, group []*neuron.Record) error {
	if s.left.Add(-1) < 0 {
		return fmt.Errorf("%w: cut off by the test", neuron.ErrStoreFailed)
	}
	return s.Store.Commit(ctx, fence, group)
}

type logWriter struct{ t testing.TB }

func (l logWriter) Write(b []byte) (int, error) {
	l.t.Logf("%s", strings.TrimSpace(string(b)))
	return len(b), nil
}

func (w *world) start() {
	w.t.Helper()
	ctx := context.WithoutCancel(w.t.Context())
	sequences := append(process.Sequences(), neuron.Sequence{
		Name: pykernel.FrameSequence, Last: pykernel.FrameSequenceLast, Save: pykernel.FrameSequenceSave,
	})
	s, err := sqlite.Open(ctx, filepath.Join(w.dir, "soma.db"), sqlite.Options{Sequences: sequences})
	w.must(err)
	w.store = &cutStore{Store: s}
	w.store.left.Store(never)
	log := slog.New(slog.NewTextHandler(logWriter{w.t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
	spool := filepath.Join(w.dir, "spool")
	w.must(os.MkdirAll(spool, 0o700))
	o := process.Options{
		Owner: "me", Node: "local", Reader: s, Models: w.stage, Prices: price.Builtin(), Python: pykerneltest.Python,
		MaxConcurrent: 4, Spool: spool, Live: w.show, Now: now, Log: log,
	}
	if w.change != nil {
		w.change(&o)
	}
	w.host = process.New(o)
	w.engine, err = engine.New(engine.Options{
		Store: w.store, Kinds: w.host.Kinds(), Types: w.host.Aliases(), Generation: s.Generation(), Now: now, Log: log,
		Adapters:  map[string]neuron.Adapter{process.InferenceKind: w.host.Adapter()},
		Committed: w.committed, Fatal: w.fatal, Inflight: filepath.Join(w.dir, "inflight"),
	})
	w.must(err)
	w.host.Bind(w.engine)
	w.must(w.host.Load(ctx))
	if w.python {
		so := supervise.Options{
			RunDir: filepath.Join(w.dir, "run"), BundleDir: filepath.Join(w.dir, "bundles"), Node: "local", Neurons: w.engine,
			Reader: s, Env: pykerneltest.Env, Log: log, Now: now,
		}
		if w.kernel != nil {
			w.kernel(&so)
		}
		w.sup, err = supervise.New(so)
		w.must(err)
		w.must(w.sup.Start(ctx))
	}
	w.dead, w.runs = false, true
	w.must(w.engine.Start(ctx))
	w.must(w.host.Start(ctx))
}

func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

func (w *world) stop() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.t.Context()), patience)
	defer cancel()
	w.must(w.host.Stop(ctx))
	w.must(w.engine.Stop(ctx))
	if w.sup != nil {
		w.must(w.sup.Stop(ctx))
	}
	w.must(w.store.Close())
	w.runs = false
}

func (w *world) restart() {
	w.t.Helper()
	w.stop()
	w.start()
}

// cut lets n more groups be committed and then none.
func (w *world) cut(n int64) { w.store.left.Store(n) }

func (w *world) committed(group []*neuron.Record) {
	for _, r := range group {
		w.writer(r)
		for _, op := range r.Ops {
			if e, ok := op.(*process.Event); ok {
				w.mu.Lock()
				w.events = append(w.events, e.Event)
				w.mu.Unlock()
			}
			w.host.Committed(op)
		}
		if w.sup != nil {
			w.sup.Committed(r.Ops)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range group {
		if r.Turn != nil {
			w.places[r.Place] = true
		}
		for _, row := range r.Outbox {
			w.places[row.Place] = true
		}
	}
	w.rouse()
}

func (w *world) show(_, kind string, body any) {
	if d, ok := body.(wire.DeltaEvent); ok && kind == wire.Delta {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.live = append(w.live, d)
		w.rouse()
	}
}

func (w *world) fatal(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !errors.Is(err, neuron.ErrStoreFailed) || w.store.left.Load() > never/2 {
		w.t.Errorf("engine: %v", err)
	}
	w.dead = true
	w.rouse()
}

// rouse wakes those who wait; the caller holds mu.
func (w *world) rouse() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// await waits until ok, which is called under the lock after each commit and delta.
func (w *world) await(what string, ok func() bool) {
	w.t.Helper()
	patience := time.NewTimer(patience)
	defer patience.Stop()
	for {
		asked := w.stage.changed() // before the look, so that no change falls between the two
		w.mu.Lock()
		done, changed, n := ok(), w.changed, len(w.events)
		w.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-asked:
		case <-patience.C:
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, e := range w.events[max(0, n-20):] {
				w.t.Logf("%s %d %s %.300s", e.Session, e.Seq, e.Kind, e.Body)
			}
			w.t.Fatalf("%s did not come", what)
		}
	}
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// open opens a session of kind run and returns its pid.
func (w *world) open(session, model string, keep bool) uint64 {
	w.t.Helper()
	s, err := w.host.Open(w.t.Context(), session, wire.OpenSession{Workspace: w.folder, Model: model, Keep: keep})
	w.must(err)
	return s.PID
}

func (w *world) admit(session, id, text string) wire.InputState {
	w.t.Helper()
	st, err := w.host.Admit(w.t.Context(), session, id, wire.Input{Text: text})
	w.must(err)
	return st
}

func (w *world) follow(session, id, text string) wire.InputState {
	w.t.Helper()
	st, err := w.host.Admit(w.t.Context(), session, id, wire.Input{Text: text, Mode: wire.After})
	w.must(err)
	return st
}

var signals atomic.Int64

func (w *world) signal(pid uint64, signal string) wire.Process {
	w.t.Helper()
	p, err := w.host.Signal(w.t.Context(), pid, fmt.Sprint("s", signals.Add(1)), wire.Signal{Signal: signal})
	w.must(err)
	return p
}

func (w *world) process(pid uint64) wire.Process {
	w.t.Helper()
	p, err := w.host.Process(w.t.Context(), pid)
	w.must(err)
	return p
}
