package engine_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/engine"
)

// N-32: the longest idle neurons go when there are too many, all of them when they stay idle; they come back by their next
// delivery, with their state, and nothing of the engine runs meanwhile.
func TestPassivation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fake()
		k := counting()
		e := start(t, b, engine.Options{Kinds: []*neuron.Kind{k}, Limits: neuron.Limits{Warm: 100}})
		before := runtime.NumGoroutine()
		for range 2 {
			for i := range 300 {
				deliver(t, e, fresh(t, id(fmt.Sprint(i)), ""))
			}
			if s := e.Stats(); s.Warm != 100 {
				t.Errorf("%d warm", s.Warm)
			}
		}
		n, _ := b.fake.Reads()
		deliver(t, e, fresh(t, id("299"), ""))
		if again, _ := b.fake.Reads(); again != n {
			t.Error("the newest neuron is not warm")
		}
		<-time.After(59 * time.Second)
		deliver(t, e, fresh(t, id("299"), ""))
		<-time.After(2 * time.Second)
		if s := e.Stats(); s.Warm != 1 {
			t.Errorf("%d warm after a minute", s.Warm)
		}
		<-time.After(time.Minute)
		if s := e.Stats(); s.Warm != 0 || runtime.NumGoroutine() > before { // those of earlier tests may end
			t.Errorf("%d warm, %d goroutines of %d", s.Warm, runtime.NumGoroutine(), before)
		}
		deliver(t, e, fresh(t, id("299"), ""))
		n2, err := b.store.Neuron(t.Context(), id("299"))
		if err != nil || string(n2.State) != "5" {
			t.Errorf("state %s, %v", n2.State, err)
		}
	})
}

// counting is a kind that counts its deliveries.
func counting() *neuron.Kind {
	k := neuron.NewKind("test")
	neuron.Handle(k, noteType, func(turn *neuron.Turn, _ note) error {
		sum, err := neuron.State(turn, sumType, nil)
		if err != nil {
			return err
		}
		return neuron.SetState(turn, sumType, sum+1)
	})
	return k
}

// N-32: a hundred thousand registered neurons cost nothing while passive and do not slow a start.
func TestManyRegisteredNeurons(t *testing.T) {
	b := fake()
	f, err := b.store.Claim(t.Context(), "earlier")
	if err != nil {
		t.Fatal(err)
	}
	const n = 100_000
	var group []*neuron.Record
	for i := range n {
		group = append(group, &neuron.Record{Neuron: id(fmt.Sprint(i)), Key: int64(i + 1), New: true})
	}
	if err := b.store.Commit(t.Context(), f, group); err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	k := neuron.NewKind("test")
	neuron.Handle(k, noteType, func(*neuron.Turn, note) error { return nil })
	e := start(t, b, engine.Options{Kinds: []*neuron.Kind{k}, Limits: neuron.Limits{Warm: 64}})
	if reads, _ := b.fake.Reads(); reads != 0 || e.Stats().Warm != 0 {
		t.Errorf("a start looked up %d neurons, %d are warm", reads, e.Stats().Warm)
	}
	goroutines := runtime.NumGoroutine()
	var wg sync.WaitGroup
	for c := range 16 {
		wg.Go(func() {
			for i := c; i < n; i += 800 {
				if err := e.Deliver(t.Context(), neuron.Delivery{ID: ident.New(time.Now()), Alias: noteType.Alias(), Target: id(fmt.Sprint(i)), Payload: []byte("{}")}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	for end := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > goroutines && time.Now().Before(end); {
		runtime.Gosched() // the last clients are on their way out
	}
	if s := e.Stats(); s.Warm > 64 || s.Turns != 16*n/800 || runtime.NumGoroutine() > goroutines || goroutines > before+8 {
		t.Errorf("%+v, %d goroutines after %d after %d", s, runtime.NumGoroutine(), goroutines, before)
	}
	if in := page(t, e, id("2"), neuron.In); in.Last != 1 {
		t.Errorf("%d turns", in.Last)
	}
}

// N-32: a warm neuron without state is at most 1 KB.
func TestWarmNeuronIsSmall(t *testing.T) {
	k := neuron.NewKind("test")
	neuron.Handle(k, noteType, func(*neuron.Turn, note) error { return nil })
	e := start(t, &base{store: nothing{}}, engine.Options{Kinds: []*neuron.Kind{k}, Limits: neuron.Limits{Warm: 1 << 20}})
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	deliver(t, e, fresh(t, id("first"), ""))
	before := heap()
	const n = 20_000
	for i := range n {
		deliver(t, e, fresh(t, id(fmt.Sprint(i)), ""))
	}
	if each := (heap() - before) / n; each > 1024 {
		t.Errorf("%d bytes each", each)
	}
	if s := e.Stats(); s.Warm != n+1 {
		t.Errorf("%+v", s)
	}
}

// nothing is a store that forgets.
type nothing struct{}

func (nothing) Claim(context.Context, string) (neuron.Fence, error) {
	return neuron.Fence{Epoch: 1, Places: neuron.AllUnder(1)}, nil
}
func (nothing) Commit(context.Context, neuron.Fence, []*neuron.Record) error {
	return nil
}
func (nothing) Neuron(context.Context, neuron.ID) (neuron.NeuronRow, error) {
	return neuron.NeuronRow{}, nil
}
func (nothing) ReserveKeys(context.Context) (int64, int64, error)      { return 1, math.MaxInt64, nil }
func (nothing) Settled(context.Context, int64, ident.ID) (bool, error) { return false, nil }
func (nothing) Entries(context.Context, neuron.ID, neuron.Feed, uint64, int) (neuron.Page, error) {
	return neuron.Page{}, nil
}
func (nothing) Outbox(context.Context, neuron.PlaceSet, ident.ID, int) ([]neuron.OutboxRow, error) {
	return nil, nil
}
func (nothing) OutboxRows(context.Context, []ident.ID) ([]neuron.OutboxRow, error) { return nil, nil }
func (nothing) Executions(context.Context, neuron.PlaceSet, ident.ID, int) ([]neuron.Execution, error) {
	return nil, nil
}
func (nothing) DeadLetters(context.Context, ident.ID, int) ([]neuron.DeadLetter, error) {
	return nil, nil
}
func (nothing) Query(context.Context, string, []any, func(func(...any) error) error) error {
	return nil
}
func (nothing) Close() error { return nil }

// N-22: a delivery between neurons is handed over in memory, and its row goes with a later commit, at the latest by a timer.
func TestHandOverInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fake()
		k := neuron.NewKind("test")
		neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error { return neuron.Send(turn, id("b"), otherType, n) })
		handled := make(chan struct{}, 1)
		neuron.Handle(k, otherType, func(*neuron.Turn, note) error { handled <- struct{}{}; return nil })
		var mu sync.Mutex
		var commits [][]*neuron.Record
		groups := func() [][]*neuron.Record {
			mu.Lock()
			defer mu.Unlock()
			return commits
		}
		store := &counted{Store: b.store}
		e := start(t, b, engine.Options{Store: store, Kinds: []*neuron.Kind{k}, Committed: func(g []*neuron.Record) {
			mu.Lock()
			defer mu.Unlock()
			commits = append(commits, g)
		}})
		began := time.Now()
		deliver(t, e, fresh(t, id("a"), ""))
		<-handled
		synctest.Wait()
		if s := e.Stats(); time.Since(began) != 0 || len(groups()) != 2 || s.Removals != 1 || s.Outbox != 0 {
			t.Errorf("%d commits after %v, %+v", len(groups()), time.Since(began), s)
		}
		deliver(t, e, fresh(t, id("c"), "")) // its commit takes the removal along
		if n := len(groups()[2]); n != 2 || len(groups()[2][1].Delivered) != 1 {
			t.Errorf("the third commit: %+v", groups()[2])
		}
		<-handled
		quiet(t, e)
		if d := time.Since(began); d != 100*time.Millisecond || len(groups()) != 5 {
			t.Errorf("%d commits after %v", len(groups()), d)
		}
		<-time.After(time.Hour)
		if len(groups()) != 5 || store.outbox != 1 {
			t.Errorf("%d commits, the outbox was read %d times", len(groups()), store.outbox)
		}
	})
}

// counted counts reads of the outbox.
type counted struct {
	neuron.Store
	outbox int
}

func (c *counted) Outbox(ctx context.Context, in neuron.PlaceSet, after ident.ID, limit int) ([]neuron.OutboxRow, error) {
	c.outbox++
	return c.Store.Outbox(ctx, in, after, limit)
}

func (c *counted) OutboxRows(ctx context.Context, ids []ident.ID) ([]neuron.OutboxRow, error) {
	c.outbox++
	return c.Store.OutboxRows(ctx, ids)
}

// The Committed hook hears of a group before watchers and callers do, in commit order.
func TestCommittedComesFirst(t *testing.T) {
	b := fake()
	var e *engine.Engine
	var last int64
	k := counting()
	e = start(t, b, engine.Options{Kinds: []*neuron.Kind{k}, Committed: func(group []*neuron.Record) {
		for _, r := range group {
			if r.Turn.Pos != last+1 {
				t.Errorf("position %d after %d", r.Turn.Pos, last)
			}
			last = r.Turn.Pos
		}
	}})
	for i := range 20 {
		deliver(t, e, fresh(t, id("a"), ""))
		if last != int64(i+1) {
			t.Fatalf("the caller was answered before the hook: %d of %d", last, i+1)
		}
	}
}

// M-04: numbers are given by the committer in commit order, anew when a group is redone.
func TestNumbersFollowTheCommits(t *testing.T) {
	b := fake()
	k := neuron.NewKind("test")
	var given []*numbered
	neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error {
		op := &numbered{}
		if n.Text == "bad" {
			turn.Write(op, swap{"nothing", "a", "b"})
			return nil
		}
		turn.Write(op)
		return nil
	})
	gate := make(chan struct{})
	e := start(t, b, engine.Options{Store: &holding{Store: b.store, gate: gate}, Kinds: []*neuron.Kind{k}, Committed: func(group []*neuron.Record) {
		for _, r := range group {
			for _, op := range r.Ops {
				given = append(given, op.(*numbered))
			}
		}
	}})
	var wg sync.WaitGroup
	for i := range 10 {
		text := ""
		if i%4 == 1 {
			text = "bad"
		}
		d := fresh(t, id(fmt.Sprint(i)), text)
		wg.Go(func() {
			if err := e.Deliver(t.Context(), d); (err != nil) != (text == "bad") {
				t.Errorf("%d: %v", i, err)
			}
		})
	}
	waitFor(t, e, func(s engine.Stats) bool { return s.Records == 10 })
	close(gate)
	wg.Wait()
	if len(given) != 7 {
		t.Fatalf("%d ops", len(given))
	}
	for i, op := range given {
		if op.n != uint64(i+1) {
			t.Errorf("op %d has number %d", i, op.n)
		}
	}
}

// numbered carries a number of one sequence.
type numbered struct {
	put
	n uint64
}

func (*numbered) Sequence() (string, string) { return "test", "x" }
func (o *numbered) SetNumber(n uint64)       { o.n = n; o.put = put{fmt.Sprint("number", n), ""} }
