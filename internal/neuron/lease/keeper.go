package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"soma/ident"
	"soma/internal/crash"
	"soma/internal/neuron"
)

// Owner is what runs at the places: the engine.
type Owner interface {
	// Fence is the right under which the owner commits; its places are those that it holds or is gaining.
	Fence() neuron.Fence
	Gain(ctx context.Context, taken map[neuron.Place]neuron.Taken) error
	// Release gives up at most so many of the places at which nothing goes on, and returns them.
	Release(places neuron.PlaceSet, most int) neuron.PlaceSet
	// Lose is called when the owner's places are or may be another node's.
	Lose(err error)
	Wake(ctx context.Context, ids []ident.ID) error
	Sweep(ctx context.Context) error
}

// Options are what a keeper is made of. Store is needed.
type Options struct {
	Store Store
	Info  NodeInfo
	// Lease is how long a node keeps its places without a beat, as the store counts it; 0 means 15 s. A beat is due five
	// times in it. Half of it without one, by this node's monotonic clock, and the node believes nothing any more.
	Lease time.Duration
	// Sweep is the time between two looks for rows whose hints were lost; 0 means a third of the lease.
	Sweep time.Duration
	Log   *slog.Logger
}

// maxHints bounds the hints that wait to be announced or taken in; more are left to the sweep.
const maxHints = 8192

// ErrLapsed is why places are lost when no beat came through in time. It wraps neuron.ErrFenced.
var ErrLapsed = fmt.Errorf("no beat within half the lease: %w", neuron.ErrFenced)

// Keeper keeps the places of one life of a node. Its methods are safe for concurrent use; it runs once.
type Keeper struct {
	store  Store
	info   NodeInfo
	lease  time.Duration
	sweep  time.Duration
	log    *slog.Logger
	last   atomic.Pointer[time.Time] // when the last beat that came through began; nil: none yet, or all is lost
	table  atomic.Pointer[Table]
	out    hints
	in     hints
	tables chan reading  // capacity 1
	freed  chan struct{} // capacity 1: another node has freed places
}

// reading is a table and when the beat that read it began.
type reading struct {
	table Table
	began time.Time
}

// New returns a keeper that does not run yet: the owner can be wired to it first.
func New(o Options) *Keeper {
	k := &Keeper{store: o.Store, info: o.Info, lease: o.Lease, sweep: o.Sweep, log: o.Log, tables: make(chan reading, 1), freed: make(chan struct{}, 1)}
	if k.lease <= 0 {
		k.lease = 15 * time.Second
	}
	if k.sweep <= 0 {
		k.sweep = k.lease / 3
	}
	if k.log == nil {
		k.log = slog.New(slog.DiscardHandler)
	}
	k.out.came, k.in.came = make(chan struct{}, 1), make(chan struct{}, 1)
	return k
}

// Leased reports whether the node may still believe that it holds its places. It does not block.
func (k *Keeper) Leased() bool {
	last := k.last.Load()
	return last != nil && (time.Since(*last) < k.lease/2 || crash.Off(crash.BeliefOff))
}

// Table returns what the newest beat has read, nil before the first.
func (k *Keeper) Table() *Table { return k.table.Load() }

// Since returns how long ago the newest beat began, 0 before the first and once all is lost.
func (k *Keeper) Since() time.Duration {
	if last := k.last.Load(); last != nil {
		return time.Since(*last)
	}
	return 0
}

// Elsewhere takes hints for other nodes. It does not block; what it has no room for is left to their sweeps.
func (k *Keeper) Elsewhere(hints []neuron.Hint) { k.out.add(hints) }

// Run beats and moves places until ctx ends or the places are lost, which the owner hears first; then it returns why. It does
// not give the places back: see Leave.
func (k *Keeper) Run(ctx context.Context, owner Owner) error {
	run, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	began := time.Now()
	k.last.Store(&began)
	var wg sync.WaitGroup
	for _, loop := range []func(context.Context, Owner) error{k.beatLoop, k.moveLoop, k.wakeLoop, k.announceLoop, k.listenLoop} {
		wg.Go(func() {
			if err := loop(run, owner); err != nil {
				stop(err)
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(run)
}

// Leave gives all places back and ends the beat. It is called after the owner has stopped in order and Run has returned: what
// an owner that failed leaves behind must be seen to have been left behind.
func (k *Keeper) Leave(ctx context.Context, fence neuron.Fence) error {
	k.last.Store(nil)
	if err := k.store.Leave(ctx, fence); err != nil {
		return err
	}
	k.tellFreed(ctx)
	return nil
}

// lose ends it all.
func (k *Keeper) lose(owner Owner, err error) error {
	k.last.Store(nil)
	err = fmt.Errorf("cannot keep the places: %w", err)
	owner.Lose(err)
	return err
}

// beatLoop beats, and hands the tables to moveLoop. Nothing that takes long happens here.
func (k *Keeper) beatLoop(ctx context.Context, owner Owner) error {
	last := *k.last.Load()
	for {
		began := time.Now()
		before := owner.Fence()
		beat, cancel := context.WithDeadline(ctx, last.Add(k.lease/2))
		t, err := k.store.Beat(beat, before, k.info)
		cancel()
		pause := k.lease / 5
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, neuron.ErrFenced):
			return k.lose(owner, err)
		case !k.Leased():
			// Also after a beat that came through too late: others may have acted on the lapse.
			return k.lose(owner, errors.Join(ErrLapsed, err))
		case err != nil:
			k.log.Warn("a beat failed", "error", err)
			pause = k.lease / 25
		default:
			if p, gone := lost(&t, before, owner.Fence()); gone && !crash.Off(crash.BeliefOff) {
				return k.lose(owner, fmt.Errorf("place %d is with %q: %w", p, t.Places[p].Holder, neuron.ErrFenced))
			}
			last = began
			k.last.Store(&began)
			k.table.Store(&t)
			select {
			case <-k.tables: // an older one that nobody has looked at
			default:
			}
			k.tables <- reading{t, began}
			pause = min(pause, soonest(&t, before.Node, k.lease))
		}
		timer := time.NewTimer(pause - min(pause, time.Since(began)))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		case <-k.freed:
			timer.Stop()
		}
	}
}

// moveLoop takes and gives places. It acts on tables only that were read after its last move.
func (k *Keeper) moveLoop(ctx context.Context, owner Owner) error {
	var moved time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case r := <-k.tables:
			if r.began.Before(moved) {
				continue
			}
			acted, err := k.move(ctx, owner, &r.table)
			if err != nil {
				return err
			}
			if acted {
				moved = time.Now()
			}
		}
	}
}

// move acts on one table and reports whether places have moved.
func (k *Keeper) move(ctx context.Context, owner Owner, t *Table) (acted bool, err error) {
	fence := owner.Fence()
	p := decide(t, fence.Node, fence.Places.Held())
	if p.give > 0 {
		acted = k.give(ctx, owner, fence, p.give)
	}
	if p.take.Len() == 0 {
		return acted, nil
	}
	bounded, cancel := context.WithTimeout(ctx, k.lease)
	taken, err := k.store.Take(bounded, fence, p.take)
	cancel()
	switch {
	case ctx.Err() != nil:
		return true, nil
	case errors.Is(err, neuron.ErrFenced):
		return true, k.lose(owner, err)
	case err != nil:
		k.log.Warn("cannot take places", "places", p.take.Len(), "error", err) // the next table says what came of it
		return true, nil
	case len(taken) == 0:
		return acted, nil
	}
	k.log.Info("places taken", "places", len(taken))
	crash.Point(crash.LeaseTaken)
	if err := owner.Gain(ctx, taken); err != nil && !errors.Is(err, neuron.ErrStopped) {
		return true, k.lose(owner, err)
	}
	return true, nil
}

// give releases n places, as many as have nothing going on, and frees them. Where freeing fails the next table shows them
// as own ones that nobody runs: they are taken again.
func (k *Keeper) give(ctx context.Context, owner Owner, fence neuron.Fence, n int) bool {
	given := owner.Release(fence.Places.Held(), n)
	if given.Len() == 0 {
		return false
	}
	bounded, cancel := context.WithTimeout(ctx, k.lease)
	defer cancel()
	if err := k.store.Give(bounded, fence, given); err != nil {
		k.log.Warn("cannot free places", "places", given.Len(), "error", err)
	} else {
		k.tellFreed(bounded)
	}
	k.log.Info("places given back", "places", given.Len())
	return true
}
