package neurontest

import (
	"context"
	"math"
	"time"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/lease"
)

// holding is a place of the store: who holds it, and under which epoch; the epoch stays when nobody does.
type holding struct {
	node  string
	epoch uint64
}

// NewShared returns an empty store for several nodes: Claim gives no place, Take and Free move them.
func NewShared(limits neuron.Limits) *Store {
	s := New(limits)
	s.several = true
	return s
}

// Claim fences the earlier lives of the node; where there is one node, all earlier claims.
func (s *Store) Claim(_ context.Context, node string) (neuron.Fence, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch++
	s.lives[node], s.node = s.epoch, node
	s.nodes[node] = lease.Node{ID: node, Epoch: s.epoch, Beat: time.Now()}
	f := neuron.Fence{Node: node, Epoch: s.epoch, Places: &neuron.Epochs{}}
	for p := range s.places {
		switch h := &s.places[p]; {
		case !s.several:
			*h = holding{node, s.epoch}
			f.Places[p] = s.epoch
		case h.node == node:
			h.epoch++
		}
	}
	return f, nil
}

// Take gives places to a node, whoever holds them, as a takeover does, and returns how it came by them.
func (s *Store) Take(node string, places neuron.PlaceSet) map[neuron.Place]neuron.Taken {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.take(node, places)
}

func (s *Store) take(node string, places neuron.PlaceSet) map[neuron.Place]neuron.Taken {
	taken := map[neuron.Place]neuron.Taken{}
	for p := range places.All() {
		h := &s.places[p]
		h.epoch++
		taken[p] = neuron.Taken{Epoch: h.epoch, From: h.node}
		h.node = node
	}
	return taken
}

// Free frees the places that the node holds.
func (s *Store) Free(node string, places neuron.PlaceSet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range places.All() {
		if h := &s.places[p]; h.node == node {
			h.node = ""
		}
	}
}

// holds reports whether the fence is that of the node's newest life and holds the places of all records.
func (s *Store) holds(f neuron.Fence, group []*neuron.Record) bool {
	if s.lives[f.Node] != f.Epoch || f.Epoch == 0 || !s.several && f.Node != s.node {
		return false
	}
	for _, r := range group {
		h := s.places[r.Place]
		if !f.Places.Has(r.Place) || h.node != f.Node || h.epoch != f.Places[r.Place] {
			return false
		}
	}
	return true
}

// queryOutbox answers the queries of the outbox.
func (s *Store) queryOutbox(sql string, args []any, fn func(scan func(dest ...any) error) error) error {
	var after ident.ID
	limit, in := math.MaxInt, func(neuron.OutboxRow) bool { return true }
	if sql == neuron.SelectOutboxTo {
		in = func(o neuron.OutboxRow) bool { return o.Target.String() == args[0] }
	} else {
		copy(after[:], args[0].([]byte))
		limit = int(args[1].(int64))
	}
	s.mu.Lock()
	rows := page(s.outbox, after, limit, in)
	s.mu.Unlock()
	for i := range rows {
		err := fn(func(dest ...any) error {
			*dest[0].(*[]byte) = rows[i].ID[:]
			if len(dest) > 1 {
				*dest[1].(*int64) = int64(rows[i].Place)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
