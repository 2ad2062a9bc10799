package graph

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"soma/ident"
	"soma/internal/neuron"
)

var _ neuron.Relay = (*Graph)(nil)

// Connections implements neuron.Relay: what is live at d.At.
func (g *Graph) Connections(ctx context.Context, d *neuron.Delivery, limit int) ([]neuron.Receiver, error) {
	var all []neuron.Receiver
	args := []any{d.Caller.Owner, d.Caller.String(), d.Alias, d.At.UnixMicro(), limit}
	err := g.reader.Query(ctx, selectReceivers, args, func(scan func(...any) error) error {
		var id []byte
		var target string
		if err := scan(&id, &target); err != nil {
			return err
		}
		to, err := neuron.ParseID(target)
		all = append(all, neuron.Receiver{Target: to, Via: ident.ID(id)})
		return err
	})
	return all, err
}

// Carry implements neuron.Relay. A connection that has been given other ends since the fact was queued is not the one that
// the fact was to go through. What its transform says now is what is done.
func (g *Graph) Carry(ctx context.Context, d *neuron.Delivery, now time.Time) (neuron.Carried, error) {
	r := row{owner: d.Target.Owner, id: d.Via}
	found := false
	err := g.reader.Query(ctx, selectOne, []any{r.owner, r.id[:]}, func(scan func(...any) error) error {
		found = true
		return scan(&r.source, &r.alias, &r.target, &r.transform, &r.expires)
	})
	if err != nil {
		return neuron.Carried{}, fmt.Errorf("cannot read connection %s: %w", d.Via, err)
	}
	if !found || !r.live(now) || r.source != d.Caller.String() || r.alias != d.Alias || r.target != d.Target.String() {
		return neuron.Carried{}, missing(d.Via)
	}
	c := neuron.Carried{Alias: d.Alias, Payload: d.Payload, Guard: &carry{row: r, now: now.UnixMicro()}}
	if r.transform == "" {
		return c, nil
	}
	var tr Transform
	if err := json.Unmarshal([]byte(r.transform), &tr); err != nil {
		return neuron.Carried{}, neuron.SettleAs(UnknownTransform, err)
	}
	apply, err := g.resolve(d.Alias, &tr)
	if err != nil {
		return neuron.Carried{}, err
	}
	if c.Alias, c.Payload, err = apply(d.Payload); err != nil {
		return neuron.Carried{}, err
	}
	return c, nil
}
