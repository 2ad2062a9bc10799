package engine

import (
	"context"
	"errors"
	"fmt"

	"soma/internal/crash"
	"soma/internal/neuron"
)

var allPlaces = neuron.AllPlaces()

// Epoch returns the epoch of the life under which this engine commits; it is known once Start has returned without an error.
func (e *Engine) Epoch() uint64 { return e.Fence().Epoch }

// Fence returns the right under which this engine commits now; the zero Fence before Start.
func (e *Engine) Fence() neuron.Fence {
	if f := e.fence.Load(); f != nil {
		return *f
	}
	return neuron.Fence{}
}

// Holding returns the places whose neurons run here.
func (e *Engine) Holding() neuron.PlaceSet {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.held
}

// Gain takes over places that the store has given to this node: it reads their outbox rows and executions, charges the
// crashes that it knows of, and lets all of it go on. It returns once deliveries to these places are taken. An error is
// neuron.ErrStopped, after which nothing has changed, or ends the engine.
func (e *Engine) Gain(ctx context.Context, taken map[neuron.Place]neuron.Taken) error {
	e.moving.Lock()
	defer e.moving.Unlock()
	if err := e.open(); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx) // half of it in memory would be of no use, and what runs outlives the call
	arrived, err := e.collect(ctx, taken, e.commitAll)
	if err == nil {
		crash.Point(crash.LeaseCounted)
		err = e.takeIn(ctx, arrived)
	}
	if err != nil {
		err = fmt.Errorf("cannot gain %d places: %w", len(taken), err)
		if !e.stops() {
			e.halt(err)
		}
	}
	return err
}

// commitAll commits records without a turn through the committer.
func (e *Engine) commitAll(_ context.Context, group []*neuron.Record) error {
	done := make(chan error, len(group))
	for _, rec := range group {
		e.submit(&staged{rec: rec, end: func(err error) { done <- err }})
	}
	var errs []error
	for range group {
		errs = append(errs, <-done)
	}
	return errors.Join(errs...)
}

// Release gives up at most so many of the places at which nothing goes on: no delivery waits in a mailbox or runs, no record
// waits for its commit, no execution runs, and Options.Busy says nothing else. Alarms and retries that wait for their time
// move along with their rows. It returns the places that it gave up: the caller frees them in the store.
func (e *Engine) Release(places neuron.PlaceSet, most int) neuron.PlaceSet {
	e.moving.Lock()
	defer e.moving.Unlock()
	e.mu.Lock()
	rest := e.idle(places.And(e.held))
	e.mu.Unlock()
	places = neuron.PlaceSet{}
	for p := range rest.All() {
		if places.Len() < most && (e.busy == nil || !e.busy(p)) {
			places.Add(p)
		}
	}
	e.mu.Lock()
	if e.openLocked() != nil {
		e.mu.Unlock()
		return neuron.PlaceSet{}
	}
	places = e.idle(places)
	for id, a := range e.warm {
		if places.Has(e.placeOf(id)) {
			e.passivate(a)
		}
	}
	for _, it := range e.drain.rows {
		if places.Has(it.place) {
			e.drain.drop(it)
		}
	}
	e.held = e.held.Without(places)
	f := *e.fence.Load()
	held := *f.Places
	for p := range places.All() {
		held[p] = 0
	}
	f.Places = &held
	e.fence.Store(&f)
	e.mu.Unlock()
	e.journals.End(func(j journal) bool { return places.Has(e.placeOf(j.id)) })
	return places
}

// idle leaves those of the places at which nothing goes on.
func (e *Engine) idle(places neuron.PlaceSet) neuron.PlaceSet {
	for id, a := range e.warm {
		if a.state != idle {
			places.Remove(e.placeOf(id))
		}
	}
	for _, x := range e.execs {
		places.Remove(x.place)
	}
	for _, p := range e.drain.removed {
		places.Remove(p)
	}
	c := &e.pending
	c.mu.Lock()
	defer c.mu.Unlock()
	for p := range places.All() {
		if c.at[p] > 0 {
			places.Remove(p)
		}
	}
	return places
}

// Lose ends the engine's work because its places are or may be another node's: nothing more is answered or committed, and
// Options.Fatal hears of it.
func (e *Engine) Lose(err error) { e.halt(err) }

// Believes returns neuron.ErrFenced when this node must no longer trust its memory, because its lease may have lapsed. Who
// answers a question from memory asks after it has found the answer.
func (e *Engine) Believes() error {
	if e.leased != nil && !e.leased() {
		return neuron.ErrFenced
	}
	return nil
}

// ownLocked returns why a delivery is not taken here, nil if it is. While a place is being gained it takes outcomes of its
// executions only: they are the engine's own.
func (e *Engine) ownLocked(d *neuron.Delivery) error {
	if e.held == allPlaces {
		return nil
	}
	p := e.placeOf(d.Target)
	if e.held.Has(p) || isOutcome(d) && e.loading.Has(p) {
		return nil
	}
	return &neuron.NotOwnerError{Place: p}
}

// anyPlace returns a place under which this node can write a row that belongs to none: p where it holds it.
func (e *Engine) anyPlace(p neuron.Place) (neuron.Place, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.held.Has(p) {
		return p, nil
	}
	for other := range e.held.All() {
		return other, nil
	}
	return p, &neuron.NotOwnerError{Place: p}
}

// own takes the records out of a group whose place was given up while they waited, and ends them.
func (e *Engine) own(fence *neuron.Fence, group []*staged) []*staged {
	for i, s := range group {
		if fence.Places.Has(s.rec.Place) {
			continue
		}
		kept := append([]*staged{}, group[:i]...)
		for _, s := range group[i:] {
			if fence.Places.Has(s.rec.Place) {
				kept = append(kept, s)
			} else {
				e.recordFailed(s, &neuron.NotOwnerError{Place: s.rec.Place})
			}
		}
		return kept
	}
	return group
}
