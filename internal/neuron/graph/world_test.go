package graph_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/engine"
	"soma/internal/neuron/graph"
	"soma/internal/store/fault"
	"soma/internal/store/postgres"
	"soma/internal/store/postgres/postgrestest"
	"soma/internal/store/sqlite"
)

// m runs the tests and then ends the server, before goroutines are counted.
type m struct{ *testing.M }

func (m m) Run() int { return postgrestest.Main(m.M) }

func TestMain(t *testing.M) { goleak.VerifyTestMain(m{t}) }

// maker makes a world on one of the databases.
type maker func(t testing.TB, o graph.Options) *world

// onBoth runs a test on SQLite and on PostgreSQL.
func onBoth(t *testing.T, fn func(t *testing.T, newWorld maker)) {
	t.Run("sqlite", func(t *testing.T) { fn(t, newWorld) })
	t.Run("postgres", func(t *testing.T) { fn(t, onPostgres) })
}

// order and bill are the messages that connections of these tests carry.
type order struct {
	Name   string   `json:"name"`
	Count  int      `json:"count"`
	Price  float64  `json:"price,omitempty"`
	Secret string   `json:"secret,omitempty"`
	Tags   []string `json:"tags,omitempty"`
}

type bill struct {
	Title string  `json:"title"`
	Total float64 `json:"total,omitempty"`
	Paid  bool    `json:"paid"`
	Count int     `json:"count,omitempty"`
}

var (
	orderType = neuron.NewType[order]("test.order.v1")
	billType  = neuron.NewType[bill]("test.bill.v1")
	goType    = neuron.NewType[order]("test.go.v1") // makes its receiver emit the order
)

func id(key string) neuron.ID { return neuron.ID{Owner: "me", Kind: "test", Key: key} }

// world is an engine with a graph on a real database, whose clock stands still until it is set; set to zero it is the
// system's.
type world struct {
	*engine.Engine
	t     testing.TB
	store neuron.Store
	// opens the database, again after a restart.
	reopen func() (neuron.Store, error)
	fault  *fault.Store
	graph  graph.Options

	mu    sync.Mutex
	now   time.Time
	heard []string
	// hear is what a test neuron does besides.
	hear func(*neuron.Turn) error
}

var start = time.Date(2030, 5, 1, 12, 0, 0, 0, time.UTC)

func newWorld(t testing.TB, o graph.Options) *world {
	path := filepath.Join(t.TempDir(), "soma.db")
	return begin(t, o, func() (neuron.Store, error) { return sqlite.Open(t.Context(), path, sqlite.Options{}) })
}

func onPostgres(t testing.TB, o graph.Options) *world {
	dsn := postgrestest.Database(t)
	return begin(t, o, func() (neuron.Store, error) { return postgres.Open(t.Context(), dsn, postgres.Options{}) })
}

func begin(t testing.TB, o graph.Options, reopen func() (neuron.Store, error)) *world {
	w := &world{t: t, reopen: reopen, now: start, graph: o}
	w.open()
	t.Cleanup(w.close)
	return w
}

func (w *world) open() {
	w.t.Helper()
	var err error
	if w.store, err = w.reopen(); err != nil {
		w.t.Fatal(err)
	}
	w.fault = fault.Wrap(w.store)
	w.graph.Reader = w.store
	g, err := graph.New(w.graph)
	if err != nil {
		w.t.Fatal(err)
	}
	k := neuron.NewKind("test")
	neuron.Handle(k, goType, func(t *neuron.Turn, o order) error { return neuron.Emit(t, orderType, o) })
	neuron.Handle(k, orderType, func(t *neuron.Turn, o order) error { return w.note(t, fmt.Sprintf("%s order %+v", t.Self().Key, o)) })
	neuron.Handle(k, billType, func(t *neuron.Turn, b bill) error { return w.note(t, fmt.Sprintf("%s bill %+v", t.Self().Key, b)) })
	w.Engine, err = engine.New(engine.Options{
		Store: w.fault, Kinds: []*neuron.Kind{k, g.Kind()}, Relay: g,
		Types:  append(graph.Aliases(), orderType.Alias(), billType.Alias(), goType.Alias()),
		Limits: neuron.Limits{BackoffMin: time.Millisecond, BackoffMax: 4 * time.Millisecond}, Now: w.clock,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.must(w.Start(w.t.Context()))
	if several, ok := w.store.(*postgres.Store); ok { // this node is alone, and takes all places
		taken, err := several.Take(w.t.Context(), w.Fence(), neuron.AllPlaces())
		w.must(err)
		w.must(w.Gain(w.t.Context(), taken))
	}
}

func (w *world) close() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.t.Context()), 20*time.Second)
	defer cancel()
	if err := errors.Join(w.Stop(ctx), w.store.Close()); err != nil {
		w.t.Error(err)
	}
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now.IsZero() {
		return time.Now()
	}
	return w.now
}

func (w *world) set(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = now
}

func (w *world) note(t *neuron.Turn, line string) error {
	if w.hear != nil {
		if err := w.hear(t); err != nil {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard = append(w.heard, line)
	return nil
}

// said returns what was heard since the last call.
func (w *world) said() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.heard
	w.heard = nil
	return all
}

func (w *world) quiet() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
	defer cancel()
	if err := w.Quiet(ctx); err != nil {
		w.t.Fatalf("not quiet: %v, %+v", err, w.Stats())
	}
}

// emit makes the source emit an order, and waits until all is delivered.
func (w *world) emit(o order) {
	w.t.Helper()
	if err := engine.Fire(w.t.Context(), w.Engine, id("source"), goType, o); err != nil {
		w.t.Fatal(err)
	}
	w.quiet()
}

func (w *world) connect(c graph.Connect) error {
	return engine.Fire(w.t.Context(), w.Engine, graph.ID("me"), graph.ConnectType, c)
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// wire is a connection from the source to the sink.
func wire() graph.Connect {
	return graph.Connect{ID: ident.New(start), Source: "me/test/source", Alias: orderType.Alias(), Target: "me/test/sink"}
}

// ids returns the connections of the table and what each has carried.
func (w *world) rows() map[ident.ID]int {
	w.t.Helper()
	m := map[ident.ID]int{}
	err := w.store.Query(w.t.Context(), "select id, carried from connection", nil, func(scan func(...any) error) error {
		var b []byte
		var n int
		err := scan(&b, &n)
		m[ident.ID(b)] = n
		return err
	})
	w.must(err)
	return m
}

// settled returns the codes in the incoming feed of a neuron, "" for what was handled.
func (w *world) settled(of neuron.ID) (codes []neuron.Code) {
	w.t.Helper()
	p, err := w.Read(w.t.Context(), of, neuron.In, 0, 0)
	w.must(err)
	for _, e := range p.Entries {
		codes = append(codes, e.Settled)
	}
	return codes
}

func code(err error) neuron.Code {
	var r *neuron.Refusal
	if errors.As(err, &r) {
		return r.Code
	}
	return ""
}
