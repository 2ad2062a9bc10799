package daemon

import (
	"context"
	"errors"
	"time"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/lease"
	"soma/wire"
)

// places moves what lives at a place: the keeper says which places come and go.
type places struct{ *daemon }

var _ lease.Owner = places{}

// Fence is the engine's.
func (p places) Fence() neuron.Fence { return p.engine.Fence() }

// Gain takes places over. Python kernels come first, so that no frame for one of them meets nobody; processes last, for their
// turns need the engine.
func (p places) Gain(ctx context.Context, taken map[neuron.Place]neuron.Taken) error {
	var set neuron.PlaceSet
	for place := range taken {
		set.Add(place)
	}
	if err := p.sup.Gain(ctx, set); err != nil {
		return err
	}
	if err := p.engine.Gain(ctx, taken); err != nil {
		return err
	}
	return p.host.Gain(ctx, set)
}

// Release gives up at most so many of the places, where nothing goes on.
func (p places) Release(set neuron.PlaceSet, most int) neuron.PlaceSet {
	given := p.engine.Release(set, most)
	if given.Len() > 0 {
		p.host.Release(given)
		p.sup.Release(given)
		p.events.end(given)
	}
	return given
}

func (p places) Lose(err error)                                 { p.engine.Lose(err) }
func (p places) Wake(ctx context.Context, ids []ident.ID) error { return p.engine.Wake(ctx, ids) }
func (p places) Sweep(ctx context.Context) error                { return p.engine.Sweep(ctx) }

// busy says that a place stays here: a process of it has a slot, a python kernel of it lives, or somebody follows it. The
// engine sees the rest.
func (d *daemon) busy(place neuron.Place) bool {
	return d.host.Busy(place) || d.sup.Busy(place) || d.events.followed(place)
}

// keep makes the keeper of the places. It runs once the engine does.
func (d *daemon) keep() {
	d.keeper = lease.New(lease.Options{
		Store: d.shared, Info: lease.NodeInfo{URL: d.doors.url, Cert: d.doors.fingerprint}, Lease: d.lease(), Log: d.log,
	})
}

// leave stops the keeper and, after an orderly end, gives the places back: others take them at once. What a fenced daemon
// leaves behind must be seen to have been left.
func (d *daemon) leave(ctx context.Context) error {
	if d.shared == nil {
		return nil
	}
	err := d.keeping.Stop(ctx)
	d.mu.Lock()
	failed := d.fatal != nil
	d.mu.Unlock()
	if failed || d.engine.Epoch() == 0 {
		return err
	}
	return errors.Join(err, d.keeper.Leave(ctx, d.engine.Fence()))
}

// nodeOf names who holds a place, for lists; "" where the store is this daemon's own.
func (d *daemon) nodeOf() func(neuron.Place) string {
	if d.shared == nil {
		return nil
	}
	return func(place neuron.Place) string { return d.peers.NodeOf(place) }
}

// lostShown is how long a daemon is listed that has been lost and has left nothing.
const lostShown = time.Hour

// nodes are the daemons that share the store, as of the last beat.
func (d *daemon) nodes() []wire.Node {
	if d.shared == nil {
		return nil
	}
	t := d.keeper.Table()
	if t == nil {
		return nil
	}
	held := map[string]int{}
	for _, h := range t.Places {
		held[h.Holder]++
	}
	since := d.keeper.Since()
	list := make([]wire.Node, 0, len(t.Nodes))
	for _, n := range t.Nodes {
		if n.Beat.IsZero() && held[n.ID] == 0 && n.ID != d.node {
			continue // it has left in order
		}
		if !n.Alive && held[n.ID] == 0 && t.Now.Sub(n.Beat) > lostShown {
			continue
		}
		row := wire.Node{ID: n.ID, URL: n.URL, Places: held[n.ID], Alive: n.Alive}
		if !n.Beat.IsZero() {
			age := (t.Now.Sub(n.Beat) + since).Round(time.Millisecond).Milliseconds()
			row.BeatMS = &age
		}
		list = append(list, row)
	}
	return list
}
