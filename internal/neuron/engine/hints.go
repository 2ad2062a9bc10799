package engine

import (
	"context"
	"time"

	"soma/ident"
)

// A sweep looks at rows that are younger than sweepBack, one in sweepAll at all: ids carry the time of the node that made
// them, and clocks differ.
const (
	sweepBack = 10 * time.Minute
	sweepAll  = 12
)

// Wake takes in outbox rows that another node has committed for places of this one, and wakes who waits here for the requests
// of the ids; others are passed over. Ids are a hint: those that are lost are found by Sweep, and who waits looks itself. The error is the store's, or neuron.ErrStopped.
func (e *Engine) Wake(ctx context.Context, ids []ident.ID) error {
	e.moving.Lock()
	defer e.moving.Unlock()
	if err := e.open(); err != nil {
		return err
	}
	e.mu.Lock()
	for _, id := range ids {
		e.wake(id)
	}
	e.mu.Unlock()
	return e.fetch(ctx, ids, nil)
}

// Sweep takes in the outbox rows of own places that are not in memory because no hint came. The error is the store's, or
// neuron.ErrStopped.
func (e *Engine) Sweep(ctx context.Context) error {
	e.moving.Lock()
	defer e.moving.Unlock()
	if err := e.open(); err != nil {
		return err
	}
	held := e.Holding()
	if held.Len() == 0 {
		return nil // what there may be is read as a place is gained
	}
	var after ident.ID
	if e.sweeps%sweepAll != 0 {
		after = ident.At(e.now().Add(-sweepBack))
	}
	e.sweeps++
	ids, err := e.unknown(ctx, after, held)
	if err != nil {
		return err
	}
	return e.fetch(ctx, ids, nil)
}
