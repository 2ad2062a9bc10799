package lease_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/engine"
	"soma/internal/neuron/lease"
	"soma/internal/store/postgres"
	"soma/internal/store/postgres/postgrestest"
)

// shortTerm is a lease that a test can wait for; half of it is more than a busy machine keeps a beat waiting.
const shortTerm = 4 * time.Second

type step struct{ N int }

var (
	stepType  = neuron.NewType[step]("test.step.v1")
	countType = neuron.NewType[int]("test.count.v1")
)

func counter(name string) neuron.ID { return neuron.ID{Owner: "me", Kind: "counter", Key: name} }

// counting is a kind that counts what comes to it, and sends it on N times more, each time to the next counter.
func counting() *neuron.Kind {
	k := neuron.NewKind("counter")
	neuron.Handle(k, stepType, func(turn *neuron.Turn, s step) error {
		n, err := neuron.State(turn, countType, nil)
		if err != nil {
			return err
		}
		if err := neuron.SetState(turn, countType, n+1); err != nil || s.N == 0 {
			return err
		}
		return neuron.Send(turn, counter(fmt.Sprint(turn.Self().Key, s.N)), stepType, step{s.N - 1})
	})
	return k
}

// wire is a store that can be cut off from its database, or made to wait, as a whole OS process is by a signal.
type wire struct {
	*postgres.Store
	mu   sync.Mutex
	gone chan struct{} // closed: nothing comes through any more
	stop chan struct{} // not nil: everything waits for its close
	held atomic.Int64
}

func (w *wire) pass() error {
	w.mu.Lock()
	stop := w.stop
	w.mu.Unlock()
	if stop != nil {
		w.held.Add(1)
		<-stop
	}
	select {
	case <-w.gone:
		return errors.New("killed")
	default:
		return nil
	}
}

func (w *wire) Commit(ctx context.Context, f neuron.Fence, group []*neuron.Record) error {
	if err := w.pass(); err != nil {
		return err
	}
	return w.Store.Commit(ctx, f, group)
}

func (w *wire) Beat(ctx context.Context, f neuron.Fence, info lease.NodeInfo) (lease.Table, error) {
	if err := w.pass(); err != nil {
		return lease.Table{}, err
	}
	return w.Store.Beat(ctx, f, info)
}

// daemon is one life of a node: engine and keeper on a store of their own.
type daemon struct {
	*engine.Engine
	keeper *lease.Keeper
	wire   *wire
	fatal  chan error
	stop   context.CancelFunc
	ended  chan error
}

func launch(t *testing.T, dsn, name, slots string) *daemon {
	t.Helper()
	s, err := postgres.Open(t.Context(), dsn, postgres.Options{Lease: shortTerm})
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{wire: &wire{Store: s, gone: make(chan struct{})}, fatal: make(chan error, 1), ended: make(chan error, 1)}
	d.keeper = lease.New(lease.Options{Store: d.wire, Lease: shortTerm})
	d.Engine, err = engine.New(engine.Options{
		Store: d.wire, Kinds: []*neuron.Kind{counting()}, Types: []string{stepType.Alias()}, Node: name, Inflight: slots,
		Elsewhere: d.keeper.Elsewhere, Leased: d.keeper.Leased, Fatal: func(err error) { d.fatal <- err },
		Limits: neuron.Limits{BackoffMin: time.Millisecond, BackoffMax: 10 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	d.stop = stop
	go func() { d.ended <- d.keeper.Run(ctx, d) }()
	return d
}

// leave ends a daemon in order.
func (d *daemon) leave(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	if err := d.Stop(ctx); err != nil {
		t.Error(err)
	}
	d.stop()
	if err := <-d.ended; err != nil {
		t.Error(err)
	}
	if err := d.keeper.Leave(ctx, d.Fence()); err != nil {
		t.Error(err)
	}
	if err := d.wire.Close(); err != nil {
		t.Error(err)
	}
}

// kill cuts a daemon off for ever; bury clears away what is left of it in this program.
func (d *daemon) kill() { close(d.wire.gone) }

func (d *daemon) bury(t *testing.T) {
	t.Helper()
	d.stop()
	<-d.ended
	if err := d.Stop(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
	_ = d.wire.Close()
}

// wait waits for a state that has no signal of its own.
func wait(t *testing.T, what string, ok func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Since(began) > 30*time.Second {
			t.Fatalf("not within 30 s: %s", what)
		}
		<-tick.C
	}
	return time.Since(began)
}

// ask delivers a step at whichever daemon takes it, under one id until it is answered.
func ask(ctx context.Context, to neuron.ID, s step, daemons func() []*daemon) error {
	d, err := stepType.New(to, s, time.Now())
	if err != nil {
		return err
	}
	for {
		for _, node := range daemons() {
			attempt, cancel := context.WithTimeout(ctx, shortTerm)
			err := node.Deliver(attempt, d)
			cancel()
			if err == nil {
				return nil
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// N-35, N-36, N-33: two nodes on one database share the places; while one of them is killed again and again, and once leaves in
// order, every step that was answered, and every step that these sent, is counted once.
func TestNodesOnPostgreSQL(t *testing.T) {
	dsn, dir := postgrestest.Database(t), t.TempDir()
	var mu sync.Mutex
	var running []*daemon
	all := func() []*daemon {
		mu.Lock()
		defer mu.Unlock()
		return append([]*daemon(nil), running...)
	}
	start := func(name string) *daemon {
		d := launch(t, dsn, name, filepath.Join(dir, name))
		mu.Lock()
		defer mu.Unlock()
		running = append(running, d)
		return d
	}
	drop := func(d *daemon) {
		mu.Lock()
		defer mu.Unlock()
		for i, other := range running {
			if other == d {
				running = append(running[:i:i], running[i+1:]...)
			}
		}
	}
	a := start("a")
	if d := wait(t, "one node holds everything", func() bool { return a.Holding() == neuron.AllPlaces() }); d > shortTerm {
		t.Errorf("alone after %v", d)
	}
	b := start("b")
	wait(t, "two nodes have half each", func() bool { return a.Holding().Len() == 128 && b.Holding().Len() == 128 })

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const clients, hops = 4, 3
	var rounds [clients]int
	finish := make(chan struct{})
	results := make(chan error, clients)
	for client := range clients {
		go func() {
			for n := 0; ; n++ {
				select {
				case <-finish:
					rounds[client] = n
					results <- nil
					return
				default:
				}
				if err := ask(ctx, counter(fmt.Sprintf("c%d-", client)), step{hops}, all); err != nil {
					results <- fmt.Errorf("client %d, step %d: %w", client, n, err)
					return
				}
			}
		}()
	}
	names := map[*daemon]string{a: "a", b: "b"}
	for range 2 {
		var victim, other *daemon
		wait(t, "one works", func() bool {
			now := all()
			victim, other = now[0], now[1]
			if other.Stats().Turns > victim.Stats().Turns {
				victim, other = other, victim
			}
			return victim.Stats().Turns > 50
		})
		victim.kill()
		drop(victim)
		if d := wait(t, "the other one holds everything", func() bool { return other.Holding() == neuron.AllPlaces() }); d > shortTerm+2*time.Second {
			t.Errorf("takeover after %v", d)
		}
		if err := <-victim.fatal; err == nil {
			t.Error("no error of the killed one")
		}
		victim.bury(t)
		again := start(names[victim])
		names[again] = names[victim]
		wait(t, "two nodes have half each again", func() bool { return again.Holding().Len() == 128 })
	}
	a, b = all()[0], all()[1]
	drop(b)
	b.leave(t)
	if d := wait(t, "the rest holds everything", func() bool { return a.Holding() == neuron.AllPlaces() }); d > shortTerm {
		t.Errorf("places of a node that left were taken after %v", d)
	}
	close(finish)
	for range clients {
		if err := <-results; err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Quiet(ctx); err != nil {
		t.Fatalf("%v, %+v", err, a.Stats())
	}
	total := 0
	for client := range clients {
		id := counter(fmt.Sprintf("c%d-", client))
		for hop := hops; ; hop-- {
			n, err := a.wire.Neuron(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			count, err := countType.Decode(n.State)
			if err != nil || count != rounds[client] || n.InSeq != uint64(count) {
				t.Errorf("%s counted %d in %d turns, want %d, %v", id, count, n.InSeq, rounds[client], err)
			}
			total += count
			if hop == 0 {
				break
			}
			id = counter(fmt.Sprint(id.Key, hop))
		}
	}
	t.Logf("%d steps over three ends of nodes", total)
	letters, err := a.DeadLetters(t.Context(), ident.ID{}, 10)
	if err != nil || len(letters) != 0 {
		t.Errorf("dead letters %+v, %v", letters, err)
	}
	a.leave(t)
}

// N-07, N-36: a node that was paused past its lease finds its places with another: what it was about to commit is refused by
// the server, its caller hears no success, it takes nothing any more, and it ends.
func TestPausedNodeOnPostgreSQL(t *testing.T) {
	dsn := postgrestest.Database(t)
	a := launch(t, dsn, "a", "")
	wait(t, "a holds everything", func() bool { return a.Holding() == neuron.AllPlaces() })
	d, err := stepType.New(counter("x"), step{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Deliver(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	a.wire.mu.Lock()
	paused := make(chan struct{})
	a.wire.stop = paused
	a.wire.mu.Unlock()
	late, err := stepType.New(counter("x"), step{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	answer := make(chan error, 1)
	go func() { answer <- a.Deliver(t.Context(), late) }()
	wait(t, "its commit and its beat wait", func() bool { return a.wire.held.Load() >= 2 })
	b := launch(t, dsn, "b", "")
	wait(t, "b holds everything", func() bool { return b.Holding() == neuron.AllPlaces() })
	if a.keeper.Leased() {
		t.Error("the paused node believes in its lease")
	}
	if err := a.Deliver(t.Context(), d); !errors.Is(err, neuron.ErrFenced) {
		t.Errorf("a repeat at the paused node: %v", err)
	}
	if err := b.Deliver(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	close(paused)
	if err := <-answer; !errors.Is(err, neuron.ErrFenced) {
		t.Errorf("the caller of the paused node was told %v", err)
	}
	if err := <-a.fatal; !errors.Is(err, neuron.ErrFenced) {
		t.Errorf("the paused node ended with %v", err)
	}
	n, err := b.wire.Neuron(t.Context(), counter("x"))
	if err != nil || string(n.State) != "2" || n.InSeq != 2 {
		t.Errorf("state %s after %d turns, %v", n.State, n.InSeq, err)
	}
	a.bury(t)
	b.leave(t)
}
