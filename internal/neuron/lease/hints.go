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

// hints wait for a goroutine.
type hints struct {
	came chan struct{} // capacity 1

	mu   sync.Mutex
	list []neuron.Hint
}

func (h *hints) add(list []neuron.Hint) {
	h.mu.Lock()
	h.list = append(h.list, list[:min(len(list), maxHints-len(h.list))]...)
	h.mu.Unlock()
	select {
	case h.came <- struct{}{}:
	default:
	}
}

func (h *hints) take() []neuron.Hint {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.list
	h.list = nil
	return list
}

// free stands among hints for places that have become free.
var free neuron.Hint

// tellFreed lets the other nodes look at once. Whom it does not reach finds the places at its next beat.
func (k *Keeper) tellFreed(ctx context.Context) {
	if err := k.store.Announce(ctx, []neuron.Hint{free}); err != nil && ctx.Err() == nil {
		k.log.Warn("cannot tell of free places", "error", err)
	}
}

// hear takes what another node announces. Hints for places that this node neither holds nor is gaining end here: they cost no
// look into the store. Who gains such a place later finds the row as it reads the place.
func (k *Keeper) hear(owner Owner, list []neuron.Hint) {
	if slices.Contains(list, free) {
		select {
		case k.freed <- struct{}{}:
		default:
		}
	}
	places := owner.Fence().Places
	list = slices.DeleteFunc(list, func(h neuron.Hint) bool { return h == free || !places.Has(h.Place) })
	if len(list) > 0 {
		k.in.add(list)
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
		if list := k.out.take(); len(list) > 0 {
			bounded, cancel := context.WithTimeout(ctx, k.lease)
			if err := k.store.Announce(bounded, list); err != nil && ctx.Err() == nil {
				k.log.Warn("cannot announce deliveries", "deliveries", len(list), "error", err)
			}
			cancel()
		}
	}
}

// listenLoop hears what other nodes announce, and listens again when the connection breaks.
func (k *Keeper) listenLoop(ctx context.Context, owner Owner) error {
	for {
		err := k.store.Listen(ctx, func(list []neuron.Hint) { k.hear(owner, list) })
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
			list := k.in.take()
			ids := make([]ident.ID, len(list))
			for i, h := range list {
				ids[i] = h.ID
			}
			err = owner.Wake(ctx, ids)
		case <-ticker.C:
			err = owner.Sweep(ctx)
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, neuron.ErrStopped) && !errors.Is(err, neuron.ErrFenced) {
			k.log.Warn("cannot take in deliveries", "error", err)
		}
	}
}
