package engine

import (
	"context"
	"fmt"
	"sync"

	"soma/internal/neuron"
)

// keys are the numbers for rows of new neurons that this engine has reserved.
type keys struct {
	mu         sync.Mutex
	next, last int64 // next is greater than last when none is left
}

// take returns a key that no other neuron has, from a block that the store reserves when the last one is used up.
func (k *keys) take(ctx context.Context, store neuron.Store) (int64, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.next > k.last {
		first, last, err := store.ReserveKeys(ctx)
		if err != nil {
			return 0, fmt.Errorf("cannot reserve neuron keys: %w", err)
		}
		k.next, k.last = first, last
	}
	k.next++
	return k.next - 1, nil
}
