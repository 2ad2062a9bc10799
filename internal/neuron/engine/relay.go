package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"soma/ident"
	"soma/internal/crash"
	"soma/internal/neuron"
)

// broadcasters lists the kinds by the aliases that they hear when emitted, in order of their names.
func broadcasters(kinds map[string]*neuron.Kind) map[string][]*neuron.Kind {
	m := map[string][]*neuron.Kind{}
	for _, k := range kinds {
		for _, alias := range k.Broadcasts() {
			m[alias] = append(m[alias], k)
		}
	}
	for _, list := range m {
		slices.SortFunc(list, func(a, b *neuron.Kind) int { return strings.Compare(a.Name, b.Name) })
	}
	return m
}

// Receivers finds whom an emission goes to now: broadcast handlers, then live connections; d is without a target. Errors:
// settled ones of a broadcast rule, or those of reading the connections.
func (e *Engine) Receivers(ctx context.Context, d *neuron.Delivery) ([]neuron.Receiver, error) {
	var all []neuron.Receiver
	for _, k := range e.heard[d.Alias] {
		id, ok, err := k.Receiver(d.Caller.Owner, d.Alias, d.Payload)
		if err != nil {
			return nil, err
		}
		if ok {
			all = append(all, neuron.Receiver{Target: id})
		}
	}
	if e.relay == nil {
		return all, nil
	}
	connections, err := e.relay.Connections(ctx, d, e.limits.Receivers+1)
	if err != nil {
		return nil, fmt.Errorf("cannot read connections: %w", err)
	}
	return append(all, connections...), nil
}

// carry turns a delivery on its way through a connection into what the connection brings. What is in the row stays as it is:
// the next attempt reads the connection anew.
func (e *Engine) carry(ctx context.Context, slot int, j *job) error {
	if e.relay == nil {
		return &neuron.Refusal{Code: neuron.MissingConnection, Err: errors.New("this program has no connections")}
	}
	ctx, cancel := context.WithTimeout(ctx, e.limits.AttemptTime)
	defer cancel()
	e.inflight.Enter(slot, j.d.ID)
	defer e.inflight.Leave(slot)
	c, err := e.relay.Carry(ctx, &j.d, e.now())
	if err != nil {
		return err
	}
	j.d.Alias, j.d.Payload, j.d.Content = c.Alias, c.Payload, ident.ID{}
	j.ops, j.carried = []neuron.Op{c.Guard}, true
	crash.Point(crash.RelayCarried)
	return nil
}

// uncarried takes back what carry did: the connection went before the commit.
func (e *Engine) uncarried(s *staged, refusal *neuron.Refusal) {
	j := s.j
	j.d, j.ops, j.carried, j.kept = j.row.Delivery, nil, false, s.kept
	e.settle(s.a, j, refusal)
}

// withheld reports whether the target must not see what the delivery holds, because no connection has carried it.
func (j *job) withheld() bool { return !j.d.Via.IsZero() && !j.carried }
