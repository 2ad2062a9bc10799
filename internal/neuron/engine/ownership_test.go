package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"soma/ident"
	"soma/internal/feed"
	"soma/internal/neuron"
	"soma/internal/neuron/engine"
)

// forwarding is a kind that sends its notes on to another neuron.
func forwarding(to neuron.ID) *neuron.Kind {
	k := placed()
	neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error { return neuron.Send(turn, to, otherType, n) })
	neuron.Handle(k, otherType, func(*neuron.Turn, note) error { return nil })
	return k
}

// N-36, N-22: a delivery for a place that is not held is refused and does nothing; what a turn sends to such a place is run by
// the node that holds it, once.
func TestDeliveriesAcrossNodes(t *testing.T) {
	c := newCluster()
	k := forwarding(at(200, "there"))
	a, b := c.join(t, "a", engine.Options{Kinds: []*neuron.Kind{k}}), c.join(t, "b", engine.Options{Kinds: []*neuron.Kind{k}})
	if err := a.Deliver(t.Context(), fresh(t, at(3, "here"), "x")); !errors.Is(err, neuron.ErrNotOwner) {
		t.Fatalf("a node without a place: %v", err)
	}
	a.take(t, places(0, 99))
	b.take(t, places(100, 255))
	var not *neuron.NotOwnerError
	for _, call := range []func(neuron.Delivery) error{
		func(d neuron.Delivery) error { return a.Deliver(t.Context(), d) },
		func(d neuron.Delivery) error { return a.Accept(t.Context(), d, put{"k", "v"}) },
		func(neuron.Delivery) error { return a.Write(t.Context(), 200, put{"k", "v"}) },
	} {
		if err := call(fresh(t, at(200, "there"), "x")); !errors.As(err, &not) || not.Place != 200 {
			t.Fatalf("delivery to a foreign place: %v", err)
		}
	}
	if len(c.store.Rows()) != 0 {
		t.Fatal("a refused call has written")
	}
	for i := range 20 {
		deliver(t, a.Engine, fresh(t, at(i, "here"), fmt.Sprint(i)))
	}
	quiet(t, a.Engine)
	if rows := c.rows(t); len(rows) != 20 || len(c.texts(t, at(200, "there"), otherType)) != 0 {
		t.Fatalf("%d rows wait for the other node", len(rows))
	}
	c.settle(t)
	if got := c.texts(t, at(200, "there"), otherType); len(got) != 20 || len(c.rows(t)) != 0 || a.Stats().Outbox != 0 {
		t.Errorf("handled %v, %d rows are left", got, len(c.rows(t)))
	}
	if a.Holding() != places(0, 99) || b.Fence().Places.Held() != places(100, 255) {
		t.Error("the nodes hold other places than they took")
	}
}

// N-36: a row whose hint was lost is found by a sweep.
func TestLostHintsAreSwept(t *testing.T) {
	c := newCluster()
	k := forwarding(at(200, "there"))
	a, b := c.join(t, "a", engine.Options{Kinds: []*neuron.Kind{k}}), c.join(t, "b", engine.Options{Kinds: []*neuron.Kind{k}})
	a.take(t, places(0, 99))
	b.take(t, places(100, 255))
	for sweep := range 14 { // over one that looks at all rows
		deliver(t, a.Engine, fresh(t, at(1, "here"), fmt.Sprint(sweep)))
		quiet(t, a.Engine)
		c.told()
		if err := b.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		quiet(t, b.Engine)
		if got := c.texts(t, at(200, "there"), otherType); len(got) != sweep+1 {
			t.Fatalf("sweep %d: handled %v", sweep, got)
		}
	}
	// A row whose id is of an hour ago is left to a sweep over all.
	old := c.join(t, "old", engine.Options{Kinds: []*neuron.Kind{k}, Store: &skewed{Store: c.store, by: -time.Hour}})
	a.give(places(0, 99))
	old.take(t, places(0, 99))
	deliver(t, old.Engine, fresh(t, at(1, "here"), "late"))
	for range 12 {
		if err := b.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	quiet(t, b.Engine)
	if got := c.texts(t, at(200, "there"), otherType); !slices.Contains(got, "late") {
		t.Errorf("handled %v", got)
	}
}

// N-36: a node that holds no place asks the store nothing at a sweep: where nodes are more than places, most hold none.
func TestSpareNodesDoNotSweep(t *testing.T) {
	c := newCluster()
	k := placed()
	store := &queried{Store: c.store}
	m := c.join(t, "spare", engine.Options{Kinds: []*neuron.Kind{k}, Store: store})
	store.n.Store(0)
	for range 13 {
		if err := m.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := store.n.Load(); n != 0 {
		t.Errorf("%d queries without a place", n)
	}
	m.take(t, places(0, 99))
	store.n.Store(0)
	if err := m.Sweep(t.Context()); err != nil || store.n.Load() == 0 {
		t.Errorf("%d queries with places, %v", store.n.Load(), err)
	}
}

// queried counts queries.
type queried struct {
	neuron.Store
	n atomic.Int64
}

func (q *queried) Query(ctx context.Context, text string, args []any, row func(func(...any) error) error) error {
	q.n.Add(1)
	return q.Store.Query(ctx, text, args, row)
}

// N-17, N-36: the order of one sender to one target on one lane is kept while both move between nodes whose clocks differ,
// hints come late, in any order or never, and each delivery is handled once.
func TestOrderOverMoves(t *testing.T) {
	all := flag.Lookup("rapid.checks").Value.String()
	_ = flag.Set("rapid.checks", "25") // each waits for timers of the engine
	defer func() { _ = flag.Set("rapid.checks", all) }()
	rapid.Check(t, func(rt *rapid.T) {
		c := newCluster()
		source, target := at(1, "source"), at(2, "target")
		var nodes []*member
		for i, skew := range []time.Duration{0, -40 * time.Second, 3 * time.Minute} {
			k := placed()
			neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error {
				for i := range n.N {
					if err := neuron.Send(turn, target, otherType, note{Text: fmt.Sprintf("%s.%d", n.Text, i)}); err != nil {
						return err
					}
				}
				return nil
			})
			neuron.Handle(k, otherType, func(*neuron.Turn, note) error { return nil })
			o := engine.Options{Kinds: []*neuron.Kind{k}, Store: &skewed{Store: c.store, by: skew}}
			nodes = append(nodes, c.join(t, fmt.Sprintf("n%d", i), o))
		}
		holder := map[neuron.Place]*member{1: nodes[0], 2: nodes[0]}
		nodes[0].take(t, neuron.PlacesOf(1, 2))
		var want []string
		var hints []ident.ID
		for step := range rapid.IntRange(5, 25).Draw(rt, "steps") {
			switch rapid.IntRange(0, 4).Draw(rt, "what") {
			case 0, 1:
				n := rapid.IntRange(1, 3).Draw(rt, "sends")
				d, err := noteType.New(source, note{Text: fmt.Sprint(step), N: n}, time.Now())
				if err != nil {
					rt.Fatal(err)
				}
				if err := holder[1].Deliver(t.Context(), d); err != nil {
					rt.Fatal(err)
				}
				for i := range n {
					want = append(want, fmt.Sprintf("%d.%d", step, i))
				}
			case 2:
				p := neuron.Place(rapid.IntRange(1, 2).Draw(rt, "place"))
				to := rapid.SampledFrom(nodes).Draw(rt, "to")
				if to == holder[p] {
					continue
				}
				for holder[p].give(neuron.PlacesOf(p)).Len() == 0 {
					quiet(t, holder[p].Engine)
				}
				to.take(t, neuron.PlacesOf(p))
				holder[p] = to
			case 3:
				hints = append(hints, c.told()...)
				rand.New(rand.NewSource(rapid.Int64().Draw(rt, "seed"))).Shuffle(len(hints), func(i, j int) { hints[i], hints[j] = hints[j], hints[i] })
				n := rapid.IntRange(0, len(hints)).Draw(rt, "hints")
				if err := holder[2].Wake(t.Context(), hints[:n]); err != nil {
					rt.Fatal(err)
				}
				hints = hints[n:]
			case 4:
				if err := holder[2].Sweep(t.Context()); err != nil {
					rt.Fatal(err)
				}
			}
		}
		for range 12 {
			if err := holder[2].Sweep(t.Context()); err != nil {
				rt.Fatal(err)
			}
		}
		for _, m := range nodes {
			quiet(t, m.Engine)
		}
		if got := c.texts(t, target, otherType); !slices.Equal(got, want) {
			rt.Fatalf("handled %v, want %v", got, want)
		}
		for _, m := range nodes {
			stop(t, m.Engine)
		}
	})
}

// skewed is the store as seen by a node whose clock differs: ids of what it sends are of its time. In one program all ids
// rise, so they are set here.
type skewed struct {
	neuron.Store
	by time.Duration
}

func (s *skewed) Commit(ctx context.Context, f neuron.Fence, group []*neuron.Record) error {
	for _, r := range group {
		for i := range r.Outbox {
			id := &r.Outbox[i].ID
			at := ident.At(id.Time().Add(s.by))
			copy(id[:6], at[:6])
		}
	}
	return s.Store.Commit(ctx, f, group)
}

// pages lets something happen between the first page of an outbox and the next.
type pages struct {
	neuron.Store
	between func()
}

func (p *pages) Outbox(ctx context.Context, in neuron.PlaceSet, after ident.ID, limit int) ([]neuron.OutboxRow, error) {
	rows, err := p.Store.Outbox(ctx, in, after, limit)
	if between := p.between; between != nil && len(rows) == limit {
		p.between = nil
		between()
	}
	return rows, err
}

// N-17, N-36: what others commit for a place while it is being read is not run out of order, and not forgotten.
func TestOrderWhileAPlaceIsRead(t *testing.T) {
	c := newCluster()
	target := at(2, "target")
	k := placed()
	neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error { return neuron.Send(turn, target, otherType, n) })
	neuron.Handle(k, otherType, func(*neuron.Turn, note) error { return nil })
	neuron.Handle(k, sumType, func(turn *neuron.Turn, n int) error {
		for range n {
			if _, err := neuron.After(turn, time.Hour, otherType, note{}); err != nil {
				return err
			}
		}
		return nil
	})
	o := engine.Options{Kinds: []*neuron.Kind{k}, Types: append(slices.Clone(types), sumType.Alias())}
	other := o
	clock := &skewed{Store: c.store}
	other.Store = clock
	a := c.join(t, "a", other)
	a.take(t, neuron.PlacesOf(1))
	wire := &pages{Store: c.store}
	o.Store = wire
	b := c.join(t, "b", o)
	b.take(t, neuron.PlacesOf(2))
	if err := engine.Fire(t.Context(), b.Engine, at(2, "alarms"), sumType, 300); err != nil {
		t.Fatal(err)
	}
	quiet(t, b.Engine)
	if b.give(neuron.PlacesOf(2)).Len() != 1 {
		t.Fatal("alarms hold a place")
	}
	wire.between = func() {
		clock.by = -time.Minute // its id lies in the page that has been read
		deliver(t, a.Engine, fresh(t, at(1, "source"), "first"))
		clock.by = time.Minute
		deliver(t, a.Engine, fresh(t, at(1, "source"), "second"))
	}
	b.take(t, neuron.PlacesOf(2))
	if wire.between != nil {
		t.Fatal("nothing happened meanwhile")
	}
	quiet(t, b.Engine)
	if got := c.texts(t, target, otherType); !slices.Equal(got, []string{"first", "second"}) {
		t.Errorf("handled %v", got)
	}
	if s := b.Stats(); s.Outbox != 300 || s.Dormant != 300 {
		t.Errorf("%+v", s)
	}
}

// N-07, N-36: an owner that was paused while its place went over computes, but its commit is refused whole, its caller is not
// told of success, and it ends; the new owner goes on from what was committed.
func TestPausedOwnerIsRefused(t *testing.T) {
	c := newCluster()
	k := placed()
	neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error {
		turn.Write(swap{"count", fmt.Sprint(n.N), fmt.Sprint(n.N + 1)})
		return nil
	})
	g := &gate{Store: c.store}
	a := c.join(t, "a", engine.Options{Kinds: []*neuron.Kind{k}, Store: g})
	b := c.join(t, "b", engine.Options{Kinds: []*neuron.Kind{k}})
	a.take(t, places(0, 255))
	if err := a.Write(t.Context(), 9, put{"count", "0"}); err != nil {
		t.Fatal(err)
	}
	counted := func(n int) neuron.Delivery {
		d, err := noteType.New(at(5, "counter"), note{N: n}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	deliver(t, a.Engine, counted(0))
	g.close()
	answer, other := make(chan error, 1), make(chan error, 1)
	paused := counted(1)
	go func() { answer <- a.Deliver(t.Context(), paused) }()
	<-g.held
	b.take(t, places(0, 7)) // not the place of the other one
	go func() { other <- a.Write(t.Context(), 9, put{"k", "v"}) }()
	deliver(t, b.Engine, counted(1))
	g.open()
	if err := end(t, a); !errors.Is(err, neuron.ErrFenced) {
		t.Fatalf("the stale owner ended with %v", err)
	}
	if err := <-answer; !errors.Is(err, neuron.ErrFenced) {
		t.Fatalf("its caller was told %v", err)
	}
	if err := <-other; !errors.Is(err, neuron.ErrFenced) {
		t.Errorf("another caller was told %v", err)
	}
	// The caller asks the new owner again, under the same id.
	if err := b.Deliver(t.Context(), paused); err == nil {
		t.Error("an effect that was there already went through")
	}
	if rows := c.store.Rows(); rows["count"] != "2" || rows["k"] != "" {
		t.Errorf("rows %v", rows)
	}
}

// N-36: a place is not given up while something goes on there; what merely waits for its time does not hold it.
func TestReleaseIsRefusedWhileBusy(t *testing.T) {
	c := newCluster()
	entered, leave := make(chan struct{}), make(chan struct{})
	k := placed()
	neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error {
		switch n.Text {
		case "slow":
			entered <- struct{}{}
			<-leave
		case "start":
			turn.Start(neuron.Execution{Kind: "slow", Policy: neuron.Idempotent, Input: json.RawMessage(`{}`), Then: endType.Alias()})
		case "alarm":
			_, err := neuron.After(turn, time.Hour, otherType, n)
			return err
		}
		return nil
	})
	neuron.Handle(k, endType, func(*neuron.Turn, neuron.Ended) error { return nil })
	neuron.Handle(k, otherType, func(*neuron.Turn, note) error { return nil })
	g := &gate{Store: c.store}
	var veto atomic.Bool
	a := c.join(t, "a", engine.Options{Kinds: []*neuron.Kind{k}, Store: g, Adapters: map[string]neuron.Adapter{"slow": adapter{
		run: func(ctx context.Context, _ neuron.Execution) (json.RawMessage, error) {
			entered <- struct{}{}
			<-leave
			return nil, nil
		}}}, Busy: func(p neuron.Place) bool { return veto.Load() && p == 7 }})
	a.take(t, places(0, 255))
	busy := func(what string, p int) {
		t.Helper()
		if given := a.Release(neuron.PlacesOf(neuron.Place(p), neuron.Place(p+1)), 256); given != neuron.PlacesOf(neuron.Place(p+1)) {
			t.Fatalf("%s: %v given", what, slices.Collect(given.All()))
		}
		if err := a.Deliver(t.Context(), fresh(t, at(p+1, "x"), "")); !errors.Is(err, neuron.ErrNotOwner) {
			t.Fatalf("%s: after the release: %v", what, err)
		}
	}
	done := make(chan error, 1)
	go func() { done <- a.Deliver(t.Context(), fresh(t, at(10, "x"), "slow")) }()
	<-entered
	busy("a handler runs", 10)
	leave <- struct{}{}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	deliver(t, a.Engine, fresh(t, at(20, "x"), "start"))
	<-entered
	busy("an execution runs", 20)
	leave <- struct{}{}
	quiet(t, a.Engine)

	g.close()
	go func() { done <- a.Write(t.Context(), 30, put{"k", "v"}) }()
	<-g.held
	go func() { done <- a.Write(t.Context(), 40, put{"l", "v"}) }()
	waitFor(t, a.Engine, func(s engine.Stats) bool { return s.Records == 2 })
	busy("a commit is under way", 30)
	busy("a record waits for its commit", 40)
	g.open()
	if err := errors.Join(<-done, <-done); err != nil {
		t.Fatal(err)
	}
	veto.Store(true)
	busy("it is vetoed", 7)

	deliver(t, a.Engine, fresh(t, at(50, "x"), "alarm"))
	quiet(t, a.Engine)
	if given := a.Release(neuron.PlacesOf(10, 20, 30, 40, 50), 256); given.Len() != 5 {
		t.Errorf("%v given afterwards", slices.Collect(given.All()))
	}
	if s := a.Stats(); s.Warm != 0 || s.Outbox != 0 || s.Dormant != 0 {
		t.Errorf("left in memory: %+v", s)
	}
	if given := a.Release(places(60, 99), 7); given.Len() != 7 || a.Holding().And(places(60, 99)).Len() != 33 {
		t.Errorf("%d given, at most seven were asked for", given.Len())
	}
	if given := a.Release(neuron.PlacesOf(10, 11), 256); given.Len() != 0 {
		t.Errorf("given twice: %v", slices.Collect(given.All()))
	}
}

// N-11, N-45, N-36: an alarm fires at the node to which its place moved, at its time; a retry goes on with its count.
func TestAlarmsAndRetriesMove(t *testing.T) {
	c := newCluster()
	var clock atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(clock.Load())) }
	var broken atomic.Bool
	broken.Store(true)
	ran := map[string]*log{"a": {}, "b": {}}
	kind := func(name string) *neuron.Kind {
		k := placed()
		neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error {
			if _, err := neuron.After(turn, time.Hour, otherType, note{Text: "alarm"}); err != nil {
				return err
			}
			return neuron.Send(turn, at(5, "failing"), otherType, note{Text: "retry"})
		})
		neuron.Handle(k, otherType, func(_ *neuron.Turn, n note) error {
			ran[name].add("%s", n.Text)
			if n.Text == "retry" && broken.Load() {
				return errBroken
			}
			return nil
		})
		return k
	}
	l := quick()
	l.BackoffMin, l.BackoffMax = time.Hour, time.Hour
	a := c.join(t, "a", engine.Options{Kinds: []*neuron.Kind{kind("a")}, Now: now, Limits: l})
	l.BackoffMax = time.Millisecond // a wait that another node began is never longer than one of its own
	b := c.join(t, "b", engine.Options{Kinds: []*neuron.Kind{kind("b")}, Now: now, Limits: l})
	a.take(t, places(0, 9))
	deliver(t, a.Engine, fresh(t, at(5, "x"), ""))
	waitFor(t, a.Engine, func(s engine.Stats) bool { return s.Running == 0 && s.Records == 0 && attemptsOf(t, c) == 2 })
	broken.Store(false)
	if given := a.give(places(0, 9)); given != places(0, 9) {
		t.Fatalf("%d places given", given.Len())
	}
	b.take(t, places(0, 9))
	quiet(t, b.Engine)
	if got := ran["b"].all(); !slices.Equal(got, []string{"retry"}) {
		t.Fatalf("b ran %v", got)
	}
	if s := b.Stats(); s.Dormant != 1 {
		t.Fatalf("%+v", s)
	}
	clock.Store(int64(2 * time.Hour))
	b.give(places(0, 9))
	c.settle(t)
	b.take(t, places(0, 9))
	quiet(t, b.Engine)
	if got := ran["b"].all(); !slices.Equal(got, []string{"retry", "alarm"}) || len(ran["a"].all()) != 1 {
		t.Errorf("b ran %v, a %v", got, ran["a"].all())
	}
	p := page(t, b.Engine, at(5, "failing"), neuron.In)
	if len(p.Entries) != 1 || p.Entries[0].Attempts != 2 {
		t.Errorf("the retried one: %+v", p.Entries)
	}
}

// attemptsOf is the highest attempt of a waiting row.
func attemptsOf(t testing.TB, c *cluster) (n int) {
	for _, r := range c.rows(t) {
		n = max(n, r.Attempts)
	}
	return n
}

// N-10, N-36: executions of a node that died go on at the one that takes its place, by their policies, and count a crash; those
// of a place that was given in order do not.
func TestExecutionsMove(t *testing.T) {
	c := newCluster()
	begun := make(chan string, 16)
	var seen sync.Map
	kind := placed()
	neuron.Handle(kind, noteType, func(turn *neuron.Turn, n note) error {
		for _, p := range []neuron.Policy{neuron.Idempotent, neuron.Attach, neuron.Once} {
			turn.Start(neuron.Execution{Kind: "work", Policy: p, Input: json.RawMessage(`{}`), Then: endType.Alias()})
		}
		return nil
	})
	neuron.Handle(kind, endType, func(turn *neuron.Turn, e neuron.Ended) error {
		turn.Write(put{"end " + string(e.Status) + " " + string(e.Payload), fmt.Sprint(e.Attempt)})
		return nil
	})
	hanging := adapter{run: func(ctx context.Context, x neuron.Execution) (json.RawMessage, error) {
		begun <- string(x.Policy)
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	working := adapter{
		run: func(_ context.Context, x neuron.Execution) (json.RawMessage, error) {
			seen.Store(x.Policy, x.Crashes)
			return json.RawMessage(`"run"`), nil
		},
		recover: func(_ context.Context, x neuron.Execution) (json.RawMessage, bool, error) {
			seen.Store(x.Policy, x.Crashes)
			return json.RawMessage(`"recovered"`), true, nil
		},
	}
	a := c.join(t, "a", engine.Options{Kinds: []*neuron.Kind{kind}, Adapters: map[string]neuron.Adapter{"work": hanging}})
	b := c.join(t, "b", engine.Options{Kinds: []*neuron.Kind{kind}, Adapters: map[string]neuron.Adapter{"work": working}})
	a.take(t, places(0, 9))
	deliver(t, a.Engine, fresh(t, at(5, "x"), ""))
	for range 3 {
		<-begun
	}
	if given := a.give(places(5, 5)); given.Len() != 0 {
		t.Fatal("a place was given whose executions run")
	}
	a.kill()
	b.take(t, places(0, 9))
	quiet(t, b.Engine)
	want := map[string]string{`end done "run"`: "2", `end done "recovered"`: "1", "end unknown ": "1"}
	if rows := c.store.Rows(); fmt.Sprint(rows) != fmt.Sprint(want) {
		t.Errorf("ends %v, want %v", rows, want)
	}
	for _, p := range []neuron.Policy{neuron.Idempotent, neuron.Attach} {
		if n, _ := seen.Load(p); n != 1 {
			t.Errorf("%s ran with %v crashes", p, n)
		}
	}
}

// N-45, N-36: a delivery that kills each node that runs it is given up after the third crash that was recorded; those that
// waited behind it or for their time are not charged, however often their node died.
func TestCrashesOverTakeovers(t *testing.T) {
	c := newCluster()
	entered, leave := make(chan struct{}, 16), make(chan struct{})
	handled := &log{}
	k := placed()
	neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error {
		for _, to := range []string{"killer", "killer", "victim"} {
			if err := neuron.Send(turn, at(5, to), otherType, note{Text: to}); err != nil {
				return err
			}
		}
		_, err := neuron.After(turn, time.Hour, otherType, note{Text: "alarm"})
		return err
	})
	deadly := true
	var mu sync.Mutex
	neuron.Handle(k, otherType, func(_ *neuron.Turn, n note) error {
		mu.Lock()
		kills := deadly && n.Text == "killer"
		mu.Unlock()
		if kills {
			entered <- struct{}{}
			<-leave
			return errBroken
		}
		handled.add("%s", n.Text)
		return nil
	})
	crashes := func() (n []int) {
		for _, r := range c.rows(t) {
			n = append(n, r.Crashes)
		}
		return n
	}
	o := engine.Options{Kinds: []*neuron.Kind{k}}
	m := c.join(t, "first", o)
	m.take(t, places(0, 9))
	deliver(t, m.Engine, fresh(t, at(1, "x"), ""))
	for n := range 4 {
		<-entered
		waitFor(t, m.Engine, func(s engine.Stats) bool {
			return s.Running == 1 && s.Records == 0 && s.Removals == 0 && len(handled.all()) == 1
		})
		if got := crashes(); !slices.Equal(got, []int{n, 0, 0}) { // both killers and the alarm
			t.Fatalf("life %d: crashes of the rows %v", n, got)
		}
		m.kill()
		next := c.join(t, fmt.Sprint("node", n), o)
		if n == 3 {
			mu.Lock()
			deadly = false
			mu.Unlock()
		}
		next.take(t, places(0, 9))
		m = next
	}
	quiet(t, m.Engine)
	close(leave)
	letters := dead(t, m.Engine)
	if len(letters) != 1 || letters[0].Code != neuron.CrashedTooOften || letters[0].Target != at(5, "killer") {
		t.Fatalf("dead letters %+v", letters)
	}
	if got := handled.all(); !slices.Equal(got, []string{"victim", "killer"}) {
		t.Errorf("handled %v", got)
	}
	if got := crashes(); !slices.Equal(got, []int{0}) {
		t.Errorf("crashes of the alarm %v", got)
	}
}

// N-45, N-36: an attempt after a takeover that ends in an ordinary failure is no crash.
func TestFailureAfterATakeoverIsNoCrash(t *testing.T) {
	c := newCluster()
	entered, leave := make(chan struct{}), make(chan error)
	k := placed()
	neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error { return neuron.Send(turn, at(5, "x"), otherType, n) })
	neuron.Handle(k, otherType, func(*neuron.Turn, note) error {
		entered <- struct{}{}
		return <-leave
	})
	l := quick()
	l.BackoffMin, l.BackoffMax = time.Hour, time.Hour
	a, b := c.join(t, "a", engine.Options{Kinds: []*neuron.Kind{k}, Limits: l}), c.join(t, "b", engine.Options{Kinds: []*neuron.Kind{k}, Limits: l})
	a.take(t, places(0, 9))
	deliver(t, a.Engine, fresh(t, at(1, "x"), ""))
	<-entered
	a.kill()
	b.take(t, places(0, 9))
	<-entered
	if r := c.rows(t); r[0].Crashes != 1 || r[0].Attempts != 2 {
		t.Fatalf("while it runs: %d crashes, %d attempts", r[0].Crashes, r[0].Attempts)
	}
	leave <- errBroken
	leave <- errBroken // both engines' handlers
	waitFor(t, b.Engine, func(s engine.Stats) bool { return s.Running == 0 && s.Records == 0 })
	if r := c.rows(t); r[0].Crashes != 0 || r[0].Attempts != 2 {
		t.Errorf("afterwards: %d crashes, %d attempts", r[0].Crashes, r[0].Attempts)
	}
}

// N-45, N-36: a node that takes its own places back charges the deliveries that it ran itself, whichever they are.
func TestOwnCrashIsChargedExactly(t *testing.T) {
	c := newCluster()
	slots := t.TempDir() + "/inflight"
	entered, leave := make(chan struct{}, 1), make(chan struct{})
	k := placed()
	neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error {
		return errors.Join(neuron.Send(turn, at(5, "killer"), otherType, n), neuron.Send(turn, at(5, "killer"), otherType, n))
	})
	neuron.Handle(k, otherType, func(*neuron.Turn, note) error {
		entered <- struct{}{}
		<-leave
		return errBroken
	})
	b := &base{store: c.store, reopen: func(testing.TB) {}}
	o := engine.Options{Kinds: []*neuron.Kind{k}, Node: "a"}
	l := live(t, b, o, slots)
	m := &member{Engine: l.Engine, name: "a", c: c}
	m.take(t, places(0, 9))
	deliver(t, m.Engine, fresh(t, at(1, "x"), ""))
	<-entered
	l.killWith(t, b, func() { leave <- struct{}{} })
	l = live(t, b, o, slots)
	m = &member{Engine: l.Engine, name: "a", c: c}
	m.take(t, places(0, 9))
	<-entered
	var crashes []int
	for _, r := range c.rows(t) {
		crashes = append(crashes, r.Crashes)
	}
	if !slices.Equal(crashes, []int{1, 0}) {
		t.Errorf("crashes %v", crashes)
	}
	l.killWith(t, b, func() { leave <- struct{}{} })
}

// N-18, N-36: a dead letter is re-driven or discarded at any node that holds a place, once over all nodes.
func TestDeadLettersOverNodes(t *testing.T) {
	c := newCluster()
	k := placed()
	neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error { return neuron.Send(turn, at(200, "there"), otherType, n) })
	o := engine.Options{Kinds: []*neuron.Kind{k}}
	a, b, none := c.join(t, "a", o), c.join(t, "b", o), c.join(t, "none", o)
	a.take(t, places(0, 99))
	b.take(t, places(100, 255))
	for range 2 {
		deliver(t, a.Engine, fresh(t, at(1, "x"), ""))
	}
	c.settle(t) // nobody handles it
	letters := dead(t, a.Engine)
	if len(letters) != 2 || letters[0].Code != neuron.NoHandler {
		t.Fatalf("dead letters %+v", letters)
	}
	if _, err := none.Redrive(t.Context(), letters[0].ID); !errors.Is(err, neuron.ErrNotOwner) {
		t.Errorf("a node without a place: %v", err)
	}
	results := make(chan error, 4)
	for _, m := range []*member{a, b, a, b} {
		go func() { _, err := m.Redrive(t.Context(), letters[0].ID); results <- err }()
	}
	won := 0
	for range 4 {
		switch err := <-results; {
		case err == nil:
			won++
		case !errors.Is(err, neuron.ErrNoDeadLetter):
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d re-drives of one letter", won)
	}
	for _, m := range []*member{a, b} {
		go func() { results <- m.Discard(t.Context(), letters[1].ID) }()
	}
	if x, y := <-results, <-results; (x == nil) == (y == nil) || !errors.Is(errors.Join(x, y), neuron.ErrNoDeadLetter) {
		t.Errorf("discarded with %v and %v", x, y)
	}
	c.settle(t)
	if again := dead(t, a.Engine); len(again) != 1 || again[0].Causation != letters[0].ID {
		t.Errorf("dead letters afterwards %+v", again)
	}
}

// N-35, N-36: new neurons of two nodes get keys of their own, block by block.
func TestKeysOfTwoNodes(t *testing.T) {
	c := newCluster()
	o := engine.Options{Kinds: []*neuron.Kind{forwarding(at(1, "x"))}}
	a, b := c.join(t, "a", o), c.join(t, "b", o)
	a.take(t, places(0, 99))
	b.take(t, places(100, 255))
	used := map[int64]neuron.ID{}
	for i := range 20 {
		for _, at := range []struct {
			m  *member
			id neuron.ID
		}{{a, at(i, "k")}, {b, at(100+i, "k")}} {
			d, err := otherType.New(at.id, note{}, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			deliver(t, at.m.Engine, d)
			n, err := c.store.Neuron(t.Context(), at.id)
			if err != nil || n.Key == 0 || !used[n.Key].IsZero() {
				t.Fatalf("%s has key %d, which is of %v, %v", at.id, n.Key, used[n.Key], err)
			}
			used[n.Key] = at.id
		}
	}
}

// N-36: once a node must not believe in its lease any more it takes nothing and answers nothing from memory or by reading.
func TestNothingIsAnsweredWithoutALease(t *testing.T) {
	c := newCluster()
	var leased atomic.Bool
	leased.Store(true)
	entered, leave := make(chan struct{}), make(chan struct{})
	k := placed()
	neuron.Handle(k, noteType, func(*neuron.Turn, note) error { return nil })
	neuron.Handle(k, otherType, func(*neuron.Turn, note) error {
		entered <- struct{}{}
		<-leave
		return nil
	})
	a := c.join(t, "a", engine.Options{Kinds: []*neuron.Kind{k}, Leased: leased.Load})
	a.take(t, places(0, 255))
	settled := fresh(t, at(5, "x"), "")
	deliver(t, a.Engine, settled)
	// A repeat that waits behind a handler is answered when the lease has lapsed.
	slow, err := otherType.New(at(5, "x"), note{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	done, repeat := make(chan error, 1), make(chan error, 1)
	go func() { done <- a.Deliver(t.Context(), slow) }()
	<-entered
	go func() { repeat <- a.Deliver(t.Context(), settled) }()
	waitFor(t, a.Engine, func(s engine.Stats) bool { return s.Waiting == 1 })
	leased.Store(false)
	leave <- struct{}{}
	if err := <-repeat; !errors.Is(err, neuron.ErrFenced) {
		t.Errorf("a repeat: %v", err)
	}
	if err := <-done; err != nil { // the server has checked the fence of this commit
		t.Errorf("a turn that was committed: %v", err)
	}
	for name, call := range map[string]func() error{
		"deliver":  func() error { return a.Deliver(t.Context(), fresh(t, at(5, "x"), "")) },
		"accept":   func() error { return a.Accept(t.Context(), fresh(t, at(5, "x"), "")) },
		"write":    func() error { return a.Write(t.Context(), 5, put{"k", "v"}) },
		"read":     func() error { _, err := a.Read(t.Context(), at(5, "x"), neuron.In, 0, 10); return err },
		"redrive":  func() error { _, err := a.Redrive(t.Context(), ident.New(time.Now())); return err },
		"gain":     func() error { return a.Gain(t.Context(), nil) },
		"believes": a.Believes,
	} {
		if err := call(); !errors.Is(err, neuron.ErrFenced) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if given := a.Release(places(0, 255), 256); given.Len() != 0 {
		t.Errorf("%d places given", given.Len())
	}
	a.Lose(neuron.ErrFenced)
	if err := end(t, a); !errors.Is(err, neuron.ErrFenced) {
		t.Errorf("ended with %v", err)
	}
}

// N-16, N-36: who watches a neuron whose place goes elsewhere is told, and watches on at its new owner.
func TestWatchersOfAMovedPlace(t *testing.T) {
	c := newCluster()
	o := engine.Options{Kinds: []*neuron.Kind{forwarding(at(1, "x"))}}
	a, b := c.join(t, "a", o), c.join(t, "b", o)
	a.take(t, places(0, 255))
	moved, stays := a.Watch(at(5, "x"), neuron.In, feed.Cursor{}), a.Watch(at(6, "x"), neuron.In, feed.Cursor{})
	defer moved.Close()
	defer stays.Close()
	if a.give(places(5, 5)).Len() != 1 {
		t.Fatal("nothing given")
	}
	b.take(t, places(5, 5))
	if _, err := moved.Next(t.Context()); !errors.Is(err, feed.ErrClosed) {
		t.Errorf("watcher of the moved one: %v", err)
	}
	d, err := otherType.New(at(6, "x"), note{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	deliver(t, a.Engine, d)
	if ev, err := stays.Next(t.Context()); err != nil || ev.Seq != 1 {
		t.Errorf("watcher of the other one: %+v, %v", ev, err)
	}
}
