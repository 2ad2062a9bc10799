package engine

import (
	"context"
	"fmt"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/recall"
)

// askFirst is how many ids of an activation are looked up one by one before it reads its whole window: who gets a few
// deliveries and rests is not worth that.
const askFirst = 8

// settled reports whether the neuron has settled the id within the dedupe window. The store is asked only where memory
// cannot rule it out.
func (e *Engine) settled(ctx context.Context, a *activation, id ident.ID) (bool, error) {
	if a.unsaved || !e.maybeSeen(a, id) {
		return false, nil
	}
	if a.asked++; a.seen == nil && a.asked > askFirst {
		if err := e.remember(ctx, a); err != nil {
			return false, err
		}
	}
	if a.seen != nil && !a.seen.Has(id) {
		return false, nil
	}
	return e.store.Settled(ctx, a.key, id)
}

// remember reads the ids of the activation's window, from a store that can list them.
func (e *Engine) remember(ctx context.Context, a *activation) error {
	store, ok := e.store.(neuron.Window)
	if !ok {
		return nil
	}
	seen := recall.New(e.limits.DedupeWindow)
	if err := store.SettledIDs(ctx, a.key, seen.Add); err != nil {
		return fmt.Errorf("cannot read the settled deliveries of %s: %w", a.id, err)
	}
	a.seen = seen
	return nil
}
