package evidence_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"soma/internal/neuron"
	"soma/internal/neuron/engine"
	"soma/internal/neuron/evidence"
	"soma/internal/store/postgres/postgrestest"
	"soma/internal/store/sqlite"
	"soma/wire"
)

// m runs the tests and then ends the server, before goroutines are counted.
type m struct{ *testing.M }

func (m m) Run() int { return postgrestest.Main(m.M) }

func TestMain(t *testing.M) { goleak.VerifyTestMain(m{t}) }

type note struct {
	N int `json:"n"`
}

var (
	noteType  = neuron.NewType[note]("test.note.v1")
	otherType = neuron.NewType[note]("test.other.v1")
	laterType = neuron.NewType[note]("test.later.v1")
	endType   = neuron.NewType[neuron.Ended]("test.ended.v1")
	errBroken = errors.New("broken")
)

func id(key string) neuron.ID { return neuron.ID{Owner: "me", Kind: "test", Key: key} }

// world is an engine on a database of its own, with its evidence.
type world struct {
	store  *sqlite.Store
	path   string
	limits neuron.Limits
	engine *engine.Engine
	ev     *evidence.Evidence
	domain *domain
}

// domain knows what a test tells it.
type domain struct {
	found map[string]evidence.Found
	facts func(e *neuron.Entry) []evidence.Fact
}

func (d *domain) Find(_ context.Context, text string) (evidence.Found, bool, error) {
	f, ok := d.found[text]
	return f, ok, nil
}

func (d *domain) Facts(_ context.Context, e *neuron.Entry) ([]evidence.Fact, error) {
	if d.facts == nil {
		return nil, nil
	}
	return d.facts(e), nil
}

func newWorld(t *testing.T, change ...func(*neuron.Limits)) *world {
	t.Helper()
	limits := neuron.DefaultLimits()
	limits.BackoffMin, limits.BackoffMax = time.Millisecond, 4*time.Millisecond
	for _, fn := range change {
		fn(&limits)
	}
	w := &world{path: filepath.Join(t.TempDir(), "soma.db"), limits: limits, domain: &domain{found: map[string]evidence.Found{}}}
	t.Cleanup(func() { w.stop(t) })
	return w
}

// start starts an engine with these kinds, after the one before has ended: a new build of the program.
func (w *world) start(t *testing.T, adapters map[string]neuron.Adapter, kinds ...*neuron.Kind) {
	t.Helper()
	w.stop(t)
	var err error
	if w.store, err = sqlite.Open(t.Context(), w.path, sqlite.Options{Limits: w.limits}); err != nil {
		t.Fatal(err)
	}
	types := []string{noteType.Alias(), otherType.Alias(), laterType.Alias(), endType.Alias()}
	w.engine, err = engine.New(engine.Options{Store: w.store, Kinds: kinds, Types: types, Adapters: adapters, Limits: w.limits, Generation: "g"})
	if err == nil {
		err = w.engine.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	w.ev = evidence.New(evidence.Options{Engine: w.engine, Reader: w.store, Domain: w.domain, Generation: "g"})
}

func (w *world) stop(t *testing.T) {
	t.Helper()
	if w.store == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Second)
	defer cancel()
	if err := errors.Join(w.engine.Stop(ctx), w.store.Close()); err != nil {
		t.Error(err)
	}
	w.store = nil
}

func (w *world) quiet(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := w.engine.Quiet(ctx); err != nil {
		t.Fatal(err)
	}
}

func (w *world) deliver(t *testing.T, to neuron.ID, n int) neuron.Delivery {
	t.Helper()
	d, err := noteType.New(to, note{n}, time.Now().UTC())
	if err == nil {
		err = w.engine.Deliver(t.Context(), d)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (w *world) trace(t *testing.T, asked string) wire.Trace {
	t.Helper()
	tr, err := w.ev.Trace(t.Context(), asked)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// compact deletes the turn rows of a neuron that have left its window, which the store does with those of many at once.
func (w *world) compact(t *testing.T, n neuron.ID, from, through int) {
	t.Helper()
	db, err := sql.Open("sqlite", w.path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), "delete from turn where neuron = (select key from neuron where id = ?) and seq between ? and ?",
		n.String(), from, through); err != nil {
		t.Fatal(err)
	}
}

// shape draws a trace without ids and times.
func shape(tr wire.Trace) string {
	var b strings.Builder
	for _, n := range tr.Nodes {
		fmt.Fprintf(&b, "%s%s %s: %s", strings.Repeat("  ", n.Depth), n.Kind, n.What, n.State)
		for _, more := range []string{n.Code, n.Error, n.Note} {
			if more != "" {
				b.WriteString(", " + more)
			}
		}
		if n.Attempts > 1 {
			fmt.Fprintf(&b, ", attempts %d", n.Attempts)
		}
		if n.Dead {
			b.WriteString(", dead")
		}
		if n.Neuron != "" {
			b.WriteString(" at " + n.Neuron)
		}
		if n.Asked {
			b.WriteString(" *")
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func wantShape(t *testing.T, tr wire.Trace, want string) {
	t.Helper()
	want = strings.TrimPrefix(want, "\n")
	if got := shape(tr); got != want {
		t.Errorf("the trace is\n%s\nwant\n%s", got, want)
	}
}

// gate is an execution that ends when it is told to.
type gate chan error

func (g gate) Run(ctx context.Context, _ neuron.Execution) (json.RawMessage, error) {
	select {
	case err := <-g:
		return json.RawMessage(`{}`), err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (g gate) Recover(context.Context, neuron.Execution) (json.RawMessage, bool, error) {
	return nil, false, nil
}
