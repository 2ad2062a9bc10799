package neurontest

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"math"
	"slices"

	"soma/ident"
	"soma/internal/neuron"
)

// Neuron returns the row as the turns made it.
func (s *Store) Neuron(_ context.Context, id neuron.ID) (neuron.NeuronRow, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads.neurons++
	n := s.neurons[id]
	if n == nil {
		return neuron.NeuronRow{}, nil
	}
	c := n.NeuronRow
	c.Tallies = neuron.Tallies{In: maps.Clone(n.Tallies.In), Out: maps.Clone(n.Tallies.Out)}
	return c, nil
}

// keyBlock is how many keys a node of several reserves at once: few, so that tests meet the end of a block.
const keyBlock = 4

// ReserveKeys returns all keys that are left to the one node, or a small block.
func (s *Store) ReserveKeys(context.Context) (first, last int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.several {
		first = s.reserved + 1
		s.reserved += keyBlock
		return first, s.reserved, nil
	}
	for key := range s.keys {
		first = max(first, key)
	}
	return first + 1, math.MaxInt64, nil
}

// Settled looks the delivery up.
func (s *Store) Settled(_ context.Context, key int64, id ident.ID) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads.settled++
	k, ok := s.turns[id]
	return ok && k == key, nil
}

// SettledIDs lists all that the neuron ever settled.
func (s *Store) SettledIDs(_ context.Context, key int64, each func(ident.ID)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.keys[key]; n != nil {
		for _, id := range n.ids {
			each(id)
		}
	}
	return nil
}

// Entries returns a page of what the windows show.
func (s *Store) Entries(_ context.Context, id neuron.ID, feed neuron.Feed, after uint64, limit int) (neuron.Page, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.neurons[id]
	if n == nil {
		return neuron.Page{First: 1}, nil
	}
	all, tallies := n.in, n.Tallies.In
	if feed == neuron.Out {
		all, tallies = n.out, n.Tallies.Out
	}
	p := neuron.Page{First: uint64(len(all)) + 1, Last: uint64(len(all)), Tallies: maps.Clone(tallies)}
	room := s.limits.JournalBytes
	for len(all)-int(p.First) < s.limits.JournalEntries-1 && p.First > 1 {
		b, err := json.Marshal(all[p.First-2])
		if err != nil {
			return p, err
		}
		if room -= len(b); room < 0 && p.First <= p.Last {
			break
		}
		p.First--
	}
	p.Reset = after+1 < p.First
	for seq := max(after+1, p.First); seq <= p.Last && len(p.Entries) < limit; seq++ {
		p.Entries, p.Seqs = append(p.Entries, all[seq-1]), append(p.Seqs, seq)
	}
	return p, nil
}

// Outbox returns rows in order of id.
func (s *Store) Outbox(_ context.Context, in neuron.PlaceSet, after ident.ID, limit int) ([]neuron.OutboxRow, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return page(s.outbox, after, limit, func(o neuron.OutboxRow) bool { return in.Has(o.Place) }), nil
}

// OutboxRows returns the rows that exist.
func (s *Store) OutboxRows(_ context.Context, ids []ident.ID) ([]neuron.OutboxRow, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []neuron.OutboxRow
	for _, id := range ids {
		if o, ok := s.outbox[id]; ok {
			out = append(out, o)
		}
	}
	return out, nil
}

// Executions returns rows in order of id.
func (s *Store) Executions(_ context.Context, in neuron.PlaceSet, after ident.ID, limit int) ([]neuron.Execution, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows := page(s.executions, after, limit, func(x execution) bool { return in.Has(x.place) })
	out := make([]neuron.Execution, len(rows))
	for i := range rows {
		out[i] = rows[i].Execution
	}
	return out, nil
}

// DeadLetters returns rows in order of id.
func (s *Store) DeadLetters(_ context.Context, after ident.ID, limit int) ([]neuron.DeadLetter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return page(s.dead, after, limit, func(neuron.DeadLetter) bool { return true }), nil
}

func page[V any](m map[ident.ID]V, after ident.ID, limit int, in func(V) bool) []V {
	ids := slices.SortedFunc(maps.Keys(m), func(a, b ident.ID) int { return bytes.Compare(a[:], b[:]) })
	var out []V
	for _, id := range ids {
		if bytes.Compare(id[:], after[:]) > 0 && len(out) < limit && in(m[id]) {
			out = append(out, m[id])
		}
	}
	return out
}
