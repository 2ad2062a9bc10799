package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"go.uber.org/goleak"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/engine"
	"soma/internal/neuron/neurontest"
	"soma/internal/store/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// note is the message of these tests.
type note struct {
	Text string `json:"text"`
	N    int    `json:"n,omitempty"`
}

var (
	noteType  = neuron.NewType[note]("test.note.v1")
	otherType = neuron.NewType[note]("test.other.v1")
	endType   = neuron.NewType[neuron.Ended]("test.ended.v1")
	sumType   = neuron.NewType[int]("test.sum.v1")
	types     = []string{noteType.Alias(), otherType.Alias(), endType.Alias()}
	errBroken = errors.New("broken")
)

func id(key string) neuron.ID { return neuron.ID{Owner: "me", Kind: "test", Key: key} }

// put writes a row once.
type put struct{ key, value string }

func (put) SQL() string {
	return "insert into test_row (key, value) values (?, ?) on conflict do nothing"
}
func (p put) Args() []any { return []any{p.key, p.value} }
func (p put) Apply(t *neurontest.Table) int {
	if _, ok := t.Get(p.key); ok {
		return 0
	}
	t.Set(p.key, p.value)
	return 1
}

// swap changes a row that must hold from.
type swap struct{ key, from, to string }

var errSwap = errors.New("the row holds something else")

func (swap) SQL() string   { return "update test_row set value = ? where key = ? and value = ?" }
func (s swap) Args() []any { return []any{s.to, s.key, s.from} }
func (swap) Guard() error  { return errSwap }
func (s swap) Apply(t *neurontest.Table) int {
	if v, ok := t.Get(s.key); !ok || v != s.from {
		return 0
	}
	t.Set(s.key, s.to)
	return 1
}

// base is a database that engines are started on, one after the other.
type base struct {
	store neuron.Store
	fake  *neurontest.Store // nil on a disk
	rows  func(t testing.TB) map[string]string
	// reopen is what a new program does.
	reopen func(t testing.TB)
}

func fake() *base {
	s := neurontest.New(neuron.DefaultLimits())
	return &base{store: s, fake: s, rows: func(testing.TB) map[string]string { return s.Rows() }, reopen: func(testing.TB) {}}
}

// migrations are those of the store and the table of put and swap.
func migrations(t testing.TB) fs.FS {
	m := fstest.MapFS{"9999_test.sql": {Data: []byte("create table test_row (key text primary key, value text not null) strict;")}}
	files, err := fs.ReadDir(sqlite.Migrations(), ".")
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range files {
		data, err := fs.ReadFile(sqlite.Migrations(), f.Name())
		if err != nil {
			t.Fatal(err)
		}
		m[f.Name()] = &fstest.MapFile{Data: data}
		if i == len(files)-1 {
			m[fmt.Sprintf("%04d_test.sql", len(files)+1)] = m["9999_test.sql"]
		}
	}
	delete(m, "9999_test.sql")
	return m
}

func onDisk(t testing.TB) *base {
	path := filepath.Join(t.TempDir(), "soma.db")
	b := &base{}
	open := func(t testing.TB) {
		s, err := sqlite.Open(t.Context(), path, sqlite.Options{Migrations: migrations(t)})
		if err != nil {
			t.Fatal(err)
		}
		b.store = s
	}
	open(t)
	b.reopen = func(t testing.TB) {
		if err := b.store.Close(); err != nil {
			t.Fatal(err)
		}
		open(t)
	}
	b.rows = func(t testing.TB) map[string]string {
		m := map[string]string{}
		err := b.store.Query(t.Context(), "select key, value from test_row", nil, func(scan func(...any) error) error {
			var k, v string
			err := scan(&k, &v)
			m[k] = v
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	t.Cleanup(func() {
		if err := b.store.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// onBoth runs a test on the fake and on SQLite.
func onBoth(t *testing.T, fn func(t *testing.T, b *base)) {
	t.Run("fake", func(t *testing.T) { fn(t, fake()) })
	t.Run("sqlite", func(t *testing.T) { fn(t, onDisk(t)) })
}

// quick are limits with short waits.
func quick() neuron.Limits {
	return neuron.Limits{BackoffMin: time.Millisecond, BackoffMax: 4 * time.Millisecond}
}

// start starts an engine that is stopped with the test.
func start(t testing.TB, b *base, o engine.Options) *engine.Engine {
	t.Helper()
	if o.Store == nil {
		o.Store = b.store
	}
	if o.Types == nil {
		o.Types = types
	}
	if o.Limits == (neuron.Limits{}) {
		o.Limits = quick()
	}
	e, err := engine.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, e) })
	return e
}

func stop(t testing.TB, e *engine.Engine) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Second)
	defer cancel()
	if err := e.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// quiet waits until the engine has nothing to do.
func quiet(t testing.TB, e *engine.Engine) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := e.Quiet(ctx); err != nil {
		t.Fatalf("not quiet: %v, %+v", err, e.Stats())
	}
}

func deliver(t testing.TB, e *engine.Engine, d neuron.Delivery) {
	t.Helper()
	if err := e.Deliver(t.Context(), d); err != nil {
		t.Fatal(err)
	}
}

func fresh(t testing.TB, to neuron.ID, text string) neuron.Delivery {
	t.Helper()
	d, err := noteType.New(to, note{Text: text}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func page(t testing.TB, e *engine.Engine, of neuron.ID, f neuron.Feed) neuron.Page {
	t.Helper()
	p, err := e.Read(t.Context(), of, f, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func dead(t testing.TB, e *engine.Engine) []neuron.DeadLetter {
	t.Helper()
	d, err := e.DeadLetters(t.Context(), ident.ID{}, 100)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// log collects what handlers saw, in order.
type log struct {
	mu    sync.Mutex
	lines []string
}

func (l *log) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

func (l *log) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.lines...)
}

// killed stands between an engine and its store: from the kill on, nothing reaches the store any more, as after a SIGKILL.
type killed struct {
	neuron.Store
	dead    atomic.Bool
	commits atomic.Int64
	at      int64 // kill before this commit; 0: never
}

func (k *killed) Commit(ctx context.Context, f neuron.Fence, group []*neuron.Record) error {
	if n := k.commits.Add(1); n == k.at {
		k.dead.Store(true)
	}
	if k.dead.Load() {
		return neuron.ErrFenced
	}
	return k.Store.Commit(ctx, f, group)
}

func (k *killed) Neuron(ctx context.Context, id neuron.ID) (neuron.NeuronRow, error) {
	if k.dead.Load() {
		return neuron.NeuronRow{}, neuron.ErrFenced
	}
	return k.Store.Neuron(ctx, id)
}

// holding lets no commit pass before the gate opens.
type holding struct {
	neuron.Store
	gate <-chan struct{}
}

func (h *holding) Commit(ctx context.Context, f neuron.Fence, group []*neuron.Record) error {
	<-h.gate
	return h.Store.Commit(ctx, f, group)
}

// waitFor waits until the engine's counts are as asked. The counts have no signal of their own, so it yields in between.
func waitFor(t testing.TB, e *engine.Engine, ok func(engine.Stats) bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(e.Stats()); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("the engine stays at %+v", e.Stats())
		}
	}
}
