package neurontest

import (
	"context"
	"slices"
	"strings"
	"time"

	"soma/internal/neuron"
	"soma/internal/neuron/lease"
)

// Leases is one node's side of the leases of a shared store. The server's clock is time.Now, which synctest moves.
type Leases struct {
	*Store
	Lease time.Duration
}

var _ lease.Store = (*Leases)(nil)

// Beat writes the beat and reads the table.
func (l *Leases) Beat(_ context.Context, fence neuron.Fence, info lease.NodeInfo) (lease.Table, error) {
	s := l.Store
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[fence.Node]
	if n.Epoch != fence.Epoch {
		return lease.Table{}, neuron.ErrFenced
	}
	t := lease.Table{Now: time.Now()}
	n.URL, n.Cert, n.Beat = info.URL, info.Cert, t.Now
	s.nodes[n.ID] = n
	for _, n := range s.nodes {
		n.Alive = l.alive(n.ID)
		t.Nodes = append(t.Nodes, n)
	}
	slices.SortFunc(t.Nodes, func(a, b lease.Node) int { return strings.Compare(a.ID, b.ID) })
	for i, h := range s.places {
		t.Places[i] = lease.Held{Holder: h.node, Epoch: h.epoch}
	}
	return t, nil
}

func (l *Leases) alive(node string) bool {
	n, ok := l.nodes[node]
	return ok && !n.Beat.IsZero() && time.Since(n.Beat) <= l.Lease
}

// Take takes those of the places that may be taken.
func (l *Leases) Take(_ context.Context, fence neuron.Fence, places neuron.PlaceSet) (map[neuron.Place]neuron.Taken, error) {
	s := l.Store
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nodes[fence.Node].Epoch != fence.Epoch {
		return nil, neuron.ErrFenced
	}
	for p := range places.All() {
		if h := s.places[p]; h.node != fence.Node && l.alive(h.node) {
			places.Remove(p)
		}
	}
	return s.take(fence.Node, places), nil
}

// Give frees the places that fence holds.
func (l *Leases) Give(_ context.Context, fence neuron.Fence, places neuron.PlaceSet) error {
	s := l.Store
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range places.All() {
		if h := &s.places[p]; h.node == fence.Node && h.epoch == fence.Places[p] {
			h.node = ""
		}
	}
	return nil
}

// Leave gives all back and ends the beat.
func (l *Leases) Leave(ctx context.Context, fence neuron.Fence) error {
	if err := l.Give(ctx, fence, neuron.AllPlaces()); err != nil {
		return err
	}
	s := l.Store
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.nodes[fence.Node]; n.Epoch == fence.Epoch {
		n.Beat = time.Time{}
		s.nodes[n.ID] = n
	}
	return nil
}

// Announce calls the listeners of the other nodes.
func (l *Leases) Announce(_ context.Context, hints []neuron.Hint) error {
	s := l.Store
	s.mu.Lock()
	defer s.mu.Unlock()
	for other, fn := range s.listeners {
		if other != l {
			fn(slices.Clone(hints))
		}
	}
	return nil
}

// Listen hears until ctx ends.
func (l *Leases) Listen(ctx context.Context, fn func([]neuron.Hint)) error {
	s := l.Store
	s.mu.Lock()
	s.listeners[l] = fn
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, l)
	return context.Cause(ctx)
}
