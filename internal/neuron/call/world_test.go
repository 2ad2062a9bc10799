package call_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"go.uber.org/goleak"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/call"
	"soma/internal/neuron/engine"
	"soma/internal/neuron/neurontest"
	"soma/internal/store/postgres"
	"soma/internal/store/postgres/postgrestest"
	"soma/internal/store/sqlite"
)

// m runs the tests and then ends the server, before goroutines are counted.
type m struct{ *testing.M }

func (m m) Run() int { return postgrestest.Main(m.M) }

func TestMain(t *testing.M) { goleak.VerifyTestMain(m{t}) }

type note struct {
	Text string `json:"text"`
	N    int    `json:"n,omitempty"`
}

var (
	goType   = neuron.NewType[note]("test.go.v1")
	sentType = neuron.NewType[note]("test.sent.v1")
	echo     = call.New[note, note]("test.echo", "say")
	door     = call.New[note, note]("test.door", "knock", call.Entry())
	count    = call.NewStream[note, int]("test.count", "up")
	types    = []string{goType.Alias(), sentType.Alias(), echo.Alias(), door.Alias(), count.Alias()}

	errBroken = errors.New("broken")
)

func id(key string) neuron.ID { return neuron.ID{Owner: "me", Kind: "test", Key: key} }

// put writes a row that must not be there: an effect that happens twice fails its turn for ever.
type put struct{ key, value string }

var errTwice = errors.New("the effect happened twice")

func (put) SQL() string {
	return "insert into test_row (key, value) values (?, ?) on conflict do nothing"
}
func (p put) Args() []any { return []any{p.key, p.value} }
func (put) Guard() error  { return errTwice }
func (p put) Apply(t *neurontest.Table) int {
	if _, ok := t.Get(p.key); ok {
		return 0
	}
	t.Set(p.key, p.value)
	return 1
}

// base is a database that engines are started on, one after the other.
type base struct {
	store neuron.Store
	rows  func(t testing.TB) map[string]string // of put
	// own makes a started engine the owner of all places, where it is not by its start.
	own func(t testing.TB, e *engine.Engine)
}

func fake() *base {
	s := neurontest.New(neuron.DefaultLimits())
	return &base{store: s, rows: func(testing.TB) map[string]string { return s.Rows() }}
}

// withRows are the migrations of a store and one more with the table of put.
func withRows(t testing.TB, all fs.FS) fs.FS {
	t.Helper()
	files := fstest.MapFS{}
	names, err := fs.Glob(all, "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		data, err := fs.ReadFile(all, name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = &fstest.MapFile{Data: data}
	}
	files[fmt.Sprintf("%04d_test.sql", len(names)+1)] = &fstest.MapFile{
		Data: []byte("create table test_row (key text primary key, value text not null);"),
	}
	return files
}

func onDisk(t testing.TB) *base {
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "soma.db"), sqlite.Options{Migrations: withRows(t, sqlite.Migrations())})
	if err != nil {
		t.Fatal(err)
	}
	return onSQL(t, s)
}

func onPostgres(t testing.TB) *base {
	s, err := postgres.Open(t.Context(), postgrestest.Database(t), postgres.Options{Migrations: withRows(t, postgres.Migrations())})
	if err != nil {
		t.Fatal(err)
	}
	b := onSQL(t, s)
	b.own = func(t testing.TB, e *engine.Engine) {
		taken, err := s.Take(t.Context(), e.Fence(), neuron.AllPlaces())
		if err == nil {
			err = e.Gain(t.Context(), taken)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func onSQL(t testing.TB, s neuron.Store) *base {
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return &base{store: s, rows: func(t testing.TB) map[string]string {
		m := map[string]string{}
		each(t, s, "select key, value from test_row", func(scan func(...any) error) error {
			var k, v string
			err := scan(&k, &v)
			m[k] = v
			return err
		})
		return m
	}}
}

func each(t testing.TB, s neuron.Store, sql string, row func(scan func(...any) error) error) {
	t.Helper()
	if err := s.Query(t.Context(), sql, nil, row); err != nil {
		t.Fatal(err)
	}
}

// onBoth runs a test on the fake, and on both databases.
func onBoth(t *testing.T, fn func(t *testing.T, b *base)) {
	t.Run("fake", func(t *testing.T) { fn(t, fake()) })
	t.Run("sqlite", func(t *testing.T) { fn(t, onDisk(t)) })
	t.Run("postgres", func(t *testing.T) { fn(t, onPostgres(t)) })
}

func quick() neuron.Limits {
	return neuron.Limits{BackoffMin: time.Millisecond, BackoffMax: 4 * time.Millisecond}
}

// world is one life of a program on a database.
type world struct {
	*engine.Engine
	t    testing.TB
	b    *base
	dead *atomic.Bool
}

// killed lets nothing reach the store any more, as after a SIGKILL, from its n-th commit on.
type killed struct {
	neuron.Store
	dead    atomic.Bool
	commits atomic.Int64
	at      int64
}

func (k *killed) Commit(ctx context.Context, f neuron.Fence, group []*neuron.Record) error {
	if k.commits.Add(1) == k.at {
		k.dead.Store(true)
	}
	if k.dead.Load() {
		return neuron.ErrFenced
	}
	return k.Store.Commit(ctx, f, group)
}

func start(t testing.TB, b *base, kinds ...*neuron.Kind) *world {
	t.Helper()
	return startUntil(t, b, 0, quick(), kinds...)
}

func startUntil(t testing.TB, b *base, commit int64, limits neuron.Limits, kinds ...*neuron.Kind) *world {
	t.Helper()
	wire := &killed{Store: b.store, at: commit}
	e, err := engine.New(engine.Options{Store: wire, Kinds: kinds, Types: types, Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{e, t, b, &wire.dead}
	w.begin()
	return w
}

func (w *world) begin() {
	w.t.Helper()
	if err := w.Start(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(w.stop)
	if w.b.own != nil {
		w.b.own(w.t, w.Engine)
	}
}

func (w *world) stop() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.t.Context()), 20*time.Second)
	defer cancel()
	if err := w.Stop(ctx); err != nil {
		w.t.Error(err)
	}
}

func (w *world) quiet() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	if err := w.Quiet(ctx); err != nil {
		w.t.Fatalf("not quiet: %v, %+v", err, w.Stats())
	}
}

// fresh is a delivery that makes a neuron of kind test go.
func fresh(t testing.TB, to neuron.ID, text string) neuron.Delivery {
	t.Helper()
	d, err := goType.New(to, note{Text: text}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (w *world) run(to neuron.ID, text string) error {
	w.t.Helper()
	return w.Deliver(w.t.Context(), fresh(w.t, to, text))
}

func (w *world) entries(of neuron.ID, f neuron.Feed) []neuron.Entry {
	w.t.Helper()
	p, err := w.Read(w.t.Context(), of, f, 0, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	for i := range p.Seqs {
		if p.Seqs[i] != p.First+uint64(i) || f == neuron.Out && p.Entries[i].Seq != p.Seqs[i] {
			w.t.Errorf("entry %d of %s has sequence %d, %d", i, of, p.Seqs[i], p.Entries[i].Seq)
		}
	}
	return p.Entries
}

// told is one fact of a call.
type told struct {
	call.Evidence
	alias string
	neuron.Entry
}

// facts are those of calls in the outgoing feed. Each request must have one end at most, after its beginning.
func (w *world) facts(of neuron.ID) []told {
	w.t.Helper()
	var out []told
	open := map[ident.ID]bool{}
	for _, e := range w.entries(of, neuron.Out) {
		if !strings.HasPrefix(e.Alias, "capability.") {
			continue
		}
		f := told{alias: strings.TrimSuffix(strings.TrimPrefix(e.Alias, "capability."), ".v1"), Entry: e}
		if err := json.Unmarshal(e.Payload, &f.Evidence); err != nil {
			w.t.Fatal(err)
		}
		if open[f.Request] == (f.alias == "requested") {
			w.t.Errorf("%s of %s: %s out of order", f.alias, f.Request, f.Contract)
		}
		open[f.Request] = f.alias == "requested"
		out = append(out, f)
	}
	return out
}

// wantFacts compares the facts of a neuron, as "alias" or "alias(code)".
func (w *world) wantFacts(of neuron.ID, want ...string) []told {
	w.t.Helper()
	facts := w.facts(of)
	var got []string
	for _, f := range facts {
		text := f.alias
		if f.Code != "" {
			text += "(" + string(f.Code) + ")"
		}
		got = append(got, text)
	}
	if !slices.Equal(got, want) {
		w.t.Errorf("%s tells %v, want %v", of, got, want)
	}
	return facts
}

// wantClean: no call and no delivery is left in any table.
func (w *world) wantClean() {
	w.t.Helper()
	w.quiet()
	rows, err := call.Pending(w.t.Context(), w.b.store, ident.ID{}, 100)
	if err != nil || len(rows) != 0 {
		w.t.Errorf("%d calls are left: %+v, %v", len(rows), rows, err)
	}
	parts := 0
	err = w.b.store.Query(w.t.Context(), "select part from call_part where part > ?", []any{int64(0)}, func(func(...any) error) error {
		parts++
		return nil
	})
	if err != nil || parts != 0 {
		w.t.Errorf("%d parts are left, %v", parts, err)
	}
	dead, err := w.DeadLetters(w.t.Context(), ident.ID{}, 10)
	if err != nil || len(dead) != 0 {
		w.t.Errorf("dead letters %+v, %v", dead, err)
	}
}

// counter counts runs by key.
type counter struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *counter) add(key string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[key]++
	return c.n[key]
}

func (c *counter) of(key string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[key]
}

// pass lets time pass in a bubble.
func pass(d time.Duration) { <-time.After(d) }

// kind is a kind "test" whose neurons go by fn.
func kind(fn func(*neuron.Turn, note) error) *neuron.Kind {
	k := neuron.NewKind("test")
	neuron.Handle(k, goType, fn)
	neuron.Handle(k, sentType, func(*neuron.Turn, note) error { return nil })
	return k
}
