package power

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/engine"
	"soma/internal/neuron/graph"
	"soma/tests/durable/counter"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var soakFor = flag.Duration("for", 0, "how long power is lost; 0: as long as takes seconds")

const clients = 4

// deed is one delivery of a client.
type deed struct {
	id  ident.ID
	key string
	pad int
}

// lost is what was left at one loss of power, and what had been acknowledged by then.
type lost struct {
	folder string
	acked  map[deed]int64 // what each had come to
	begun  []deed
	when   string
}

// work lets clients move counters on and loses power now and then, meanwhile.
type work struct {
	t    testing.TB
	dir  string
	disk *disk
	dsn  string

	mu    sync.Mutex // after the disk's
	acked map[deed]int64
	begun []deed
	taken int
	found chan lost
}

func limits() neuron.Limits {
	l := counter.Small()
	l.DedupeWindow = 1 << 20 // everything is delivered once more
	return l
}

// run starts an engine on a database.
func run(ctx context.Context, dsn string) (*engine.Engine, neuron.Store, error) {
	s, err := counter.Open(ctx, dsn, limits(), 0)
	if err != nil {
		return nil, nil, err
	}
	g, err := graph.New(graph.Options{Reader: s})
	if err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	e, err := engine.New(engine.Options{
		Store: s, Kinds: append(counter.Kinds(func(ident.ID) {}), g.Kind()), Types: counter.Types(), Relay: g,
		Adapters: map[string]neuron.Adapter{"work": counter.Work{}}, Limits: limits(),
	})
	if err == nil {
		err = e.Start(ctx)
	}
	if err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	return e, s, nil
}

func stop(ctx context.Context, e *engine.Engine, s neuron.Store) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	return errors.Join(e.Stop(ctx), s.Close())
}

// do delivers one deed and returns what it has come to.
func (d deed) do(ctx context.Context, e *engine.Engine, s neuron.Store) (int64, error) {
	x, err := counter.AddType.New(counter.Counter(d.key), counter.Add{By: 1, Pad: strings.Repeat("x", d.pad)}, time.Now())
	if err != nil {
		return 0, err
	}
	x.ID, x.Correlation = d.id, d.id
	if err := e.Deliver(ctx, x); err != nil {
		return 0, err
	}
	sum, found, err := counter.Noted(ctx, s, d.id)
	if err == nil && !found {
		err = errors.New("nothing is noted")
	}
	return sum, err
}

// losePower lets clients work, each doing many deeds, and judges what each loss has left. It returns how many there were and
// what was wrong with the first bad one.
func losePower(t testing.TB, seed uint64, many, most int) (losses int, err error) {
	t.Helper()
	w := &work{t: t, dir: t.TempDir(), acked: map[deed]int64{}, found: make(chan lost, 2)}
	live := filepath.Join(w.dir, "live")
	if err := os.Mkdir(live, 0o700); err != nil {
		t.Fatal(err)
	}
	w.disk, w.dsn = watch(live, seed), "sqlite:"+filepath.Join(live, "soma.db")
	e, s, err := run(t.Context(), w.dsn)
	if err != nil {
		t.Fatal(err)
	}
	var judge sync.WaitGroup
	var bad error
	judge.Go(func() {
		for l := range w.found {
			if jerr := l.judge(t.Context()); jerr != nil && bad == nil {
				bad = fmt.Errorf("after %s, with %d acknowledged of %d: %w", l.when, len(l.acked), len(l.begun), jerr)
			}
			_ = os.RemoveAll(l.folder)
		}
	})
	w.disk.mu.Lock()
	w.disk.wrote = func(path, what string) { w.maybe(path, what, most) }
	w.disk.mu.Unlock()
	var wg sync.WaitGroup
	errs := make([]error, clients)
	for c := range clients {
		wg.Go(func() { errs[c] = w.client(t.Context(), e, s, rand.New(rand.NewPCG(seed, uint64(c))), c, many) })
	}
	wg.Wait()
	w.disk.mu.Lock()
	w.disk.wrote = nil
	w.disk.mu.Unlock()
	close(w.found)
	judge.Wait()
	if err := errors.Join(append(errs, stop(t.Context(), e, s))...); err != nil {
		t.Fatal(err)
	}
	return w.taken, bad
}

func (w *work) client(ctx context.Context, e *engine.Engine, s neuron.Store, r *rand.Rand, c, many int) error {
	for range many {
		d := deed{id: ident.New(time.Now()), key: fmt.Sprint("k", (c+r.IntN(2))%clients)}
		if r.IntN(2) == 0 {
			d.pad = r.IntN(50_000)
		}
		w.mu.Lock()
		w.begun = append(w.begun, d)
		w.mu.Unlock()
		sum, err := d.do(ctx, e, s)
		if err != nil {
			return err
		}
		w.mu.Lock()
		w.acked[d] = sum
		w.mu.Unlock()
	}
	return nil
}

// maybe loses power at this moment, by lot: seldom at a write to the WAL, more often where the database itself is written.
func (w *work) maybe(path, what string, most int) {
	oneIn := 500
	if what != "write" || !strings.HasSuffix(path, "-wal") {
		oneIn = 50
	}
	if w.taken >= most || w.disk.lot.IntN(oneIn) != 0 {
		return
	}
	folder := filepath.Join(w.dir, fmt.Sprint("lost", w.taken))
	l := lost{folder: folder, acked: map[deed]int64{}, when: fmt.Sprintf("a %s of %s", what, filepath.Base(path))}
	w.mu.Lock()
	for d, sum := range w.acked {
		l.acked[d] = sum
	}
	l.begun = append([]deed(nil), w.begun...)
	w.mu.Unlock()
	if len(l.acked) == 0 {
		return
	}
	if err := errors.Join(os.Mkdir(folder, 0o700), w.disk.lose(folder)); err != nil {
		w.t.Error(err)
		return
	}
	w.taken++
	w.found <- l
}

// judge opens what was left: the database is whole, all that was acknowledged is there as it was, and after all has been
// delivered once more nothing has happened twice.
func (l *lost) judge(ctx context.Context) (err error) {
	e, s, err := run(ctx, "sqlite:"+filepath.Join(l.folder, "soma.db"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop(ctx, e, s)) }()
	whole := ""
	err = s.Query(ctx, "pragma integrity_check", nil, func(scan func(...any) error) error {
		var line string
		err := scan(&line)
		whole += line
		return err
	})
	if err != nil {
		return err
	}
	if whole != "ok" {
		return fmt.Errorf("the database is damaged: %s", whole)
	}
	for d, sum := range l.acked {
		if got, found, err := counter.Noted(ctx, s, d.id); err != nil || !found || got != sum {
			return fmt.Errorf("an acknowledged delivery to %s is lost: %d in place of %d, found %v, %v", d.key, got, sum, found, err)
		}
	}
	want := map[neuron.ID]int64{}
	for _, d := range l.begun {
		sum, err := d.do(ctx, e, s)
		if err != nil {
			return err
		}
		if was, ok := l.acked[d]; ok && was != sum {
			return fmt.Errorf("a delivery to %s that had come to %d comes to %d", d.key, was, sum)
		}
		want[counter.Counter(d.key)]++
	}
	if err := e.Quiet(ctx); err != nil {
		return err
	}
	return counter.Check(ctx, s, want)
}

// N-33: SQLite loses power at any moment of a commit or a checkpoint: all that was acknowledged is there, and nothing twice.
func TestPowerLoss(t *testing.T) {
	total, began := 0, time.Now()
	for seed := uint64(1); seed == 1 || time.Since(began) < *soakFor; seed++ {
		if *soakFor > 0 {
			t.Logf("seed %d", seed)
		}
		many, most := 150, 15
		if *soakFor > 0 { // until the WAL begins anew
			many, most = 1500, 40
		}
		n, err := losePower(t, seed, many, most)
		if err != nil {
			t.Fatal(err)
		}
		total += n
	}
	t.Logf("power was lost %d times, after %d fsyncs", total, theDisk.syncs)
	if total < 5 {
		t.Errorf("power was lost only %d times", total)
	}
}
