package engine

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/maphash"

	"soma/ident"
	"soma/internal/neuron"
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
	if a.seen != nil && !a.seen.has(id) {
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
	seen := &seen{window: e.limits.DedupeWindow}
	if err := store.SettledIDs(ctx, a.key, seen.add); err != nil {
		return fmt.Errorf("cannot read the settled deliveries of %s: %w", a.id, err)
	}
	a.seen = seen
	return nil
}

// seen is a set that holds the last window ids that were added to it, and possibly seems to hold others: of ids that are
// not there about one in a hundred. It is two Bloom filters, of which the older one goes when the younger one has taken a
// whole window. A nil seen takes nothing.
type seen struct {
	window     int
	n          int // ids in young
	young, old filter
}

const filterBits = 1 << 15

type filter [filterBits / 64]uint64

var seed = maphash.MakeSeed()

func (s *seen) add(id ident.ID) {
	if s == nil {
		return
	}
	if s.n == s.window {
		s.young, s.old, s.n = filter{}, s.young, 0
	}
	s.n++
	for _, bit := range bitsOf(id) {
		s.young[bit/64] |= 1 << (bit % 64)
	}
}

func (s *seen) has(id ident.ID) bool {
	bits := bitsOf(id)
	return s.young.has(bits) || s.old.has(bits)
}

func (f *filter) has(bits [4]uint16) bool {
	for _, bit := range bits {
		if f[bit/64]&(1<<(bit%64)) == 0 {
			return false
		}
	}
	return true
}

func bitsOf(id ident.ID) (bits [4]uint16) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], maphash.Bytes(seed, id[:]))
	for i := range bits {
		bits[i] = binary.LittleEndian.Uint16(b[2*i:]) % filterBits
	}
	return bits
}
