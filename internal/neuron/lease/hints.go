package lease

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"soma/ident"
	"soma/internal/neuron"
)

// hints are ids that wait for a goroutine.
type hints struct {
	came chan struct{} // capacity 1

	mu  sync.Mutex
	ids []ident.ID
}

func (h *hints) add(ids []ident.ID) {
	h.mu.Lock()
	h.ids = append(h.ids, ids[:min(len(ids), maxHints-len(h.ids))]...)
	h.mu.Unlock()
	select {
	case h.came <- struct{}{}:
	default:
	}
}

func (h *hints) take() []ident.ID {
	h.mu.Lock()
	defer h.mu.Unlock()
	ids := h.ids
	h.ids = nil
	return ids
}

// noID stands among announced ids for places that have become free.
var noID ident.ID

// tellFreed lets the other nodes look at once. Whom it does not reach finds the places at its next beat.
func (k *Keeper) tellFreed(ctx context.Context) {
	if err := k.store.Announce(ctx, []ident.ID{noID}); err != nil && ctx.Err() == nil {
		k.log.Warn("cannot tell of free places", "error", err)
	}
}

// hear takes what another node announces.
func (k *Keeper) hear(ids []ident.ID) {
	if i := slices.Index(ids, noID); i >= 0 {
		ids = slices.Delete(ids, i, i+1)
		select {
		case k.freed <- struct{}{}:
		default:
		}
	}
	if len(ids) > 0 {
		k.in.add(ids)
	}
}

// announceLoop tells other nodes what the owner has committed for them: all that has come meanwhile at once.
func (k *Keeper) announceLoop(ctx context.Context, _ Owner) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-k.out.came:
		}
		if ids := k.out.take(); len(ids) > 0 {
			bounded, cancel := context.WithTimeout(ctx, k.lease)
			if err := k.store.Announce(bounded, ids); err != nil && ctx.Err() == nil {
				k.log.Warn("cannot announce deliveries", "deliveries", len(ids), "error", err)
			}
			cancel()
		}
	}
}

// listenLoop hears what other nodes announce, and listens again when the connection breaks.
func (k *Keeper) listenLoop(ctx context.Context, _ Owner) error {
	for {
		err := k.store.Listen(ctx, k.hear)
		if ctx.Err() != nil {
			return nil
		}
		k.log.Warn("cannot hear of deliveries", "error", err)
		timer := time.NewTimer(k.lease / 25)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
}

// wakeLoop lets the owner take in what was announced, and now and then what was not.
func (k *Keeper) wakeLoop(ctx context.Context, owner Owner) error {
	ticker := time.NewTicker(k.sweep)
	defer ticker.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-k.in.came:
			err = owner.Wake(ctx, k.in.take())
		case <-ticker.C:
			err = owner.Sweep(ctx)
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, neuron.ErrStopped) && !errors.Is(err, neuron.ErrFenced) {
			k.log.Warn("cannot take in deliveries", "error", err)
		}
	}
}
