package lease

import (
	"context"
	"errors"
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
		err := k.store.Listen(ctx, k.in.add)
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
