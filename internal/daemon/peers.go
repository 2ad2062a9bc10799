package daemon

import (
	"context"
	"net/http"

	"soma/internal/api"
	"soma/internal/neuron"
	"soma/internal/peer"
)

// peersOf is what the API asks about the other daemons of the store.
type peersOf struct {
	*daemon
}

var _ api.Peers = peersOf{}

// place finds where what is named lives; known is false for what nobody knows.
func (p peersOf) place(ctx context.Context, n api.Named) (place neuron.Place, known bool, err error) {
	session := n.Session
	switch {
	case n.PID != 0:
		return p.host.PlaceOf(ctx, n.PID)
	case n.Branch != "":
		session, err = p.view.SessionOf(ctx, n.Branch)
	case n.Cell != "":
		session, err = p.host.SessionOfAnyCell(ctx, n.Cell)
	case n.Neuron != "":
		id, err := neuron.ParseID(n.Neuron)
		if err != nil {
			return 0, false, nil // its handler says so
		}
		return p.engine.PlaceOf(id), true, nil
	}
	return neuron.PlaceOf(session), session != "", err
}

// Holds reports whether this daemon answers for what is named.
func (p peersOf) Holds(ctx context.Context, n api.Named) (bool, error) {
	place, known, err := p.place(ctx, n)
	return !known || p.holds(place), err
}

// Ask has the holder of what is named answer.
func (p peersOf) Ask(ctx context.Context, n api.Named, q api.Question) (*http.Response, error) {
	place, known, err := p.place(ctx, n)
	if err != nil || !known {
		return nil, err
	}
	return p.peers.Ask(ctx, place, peer.Question(q))
}

// Hints begins to listen to all daemons.
func (p peersOf) Hints() api.Subscription {
	s := p.events.subscribe("")
	p.events.widen(s)
	return &wide{s, p.peers.Listen()}
}

// wide is a subscription to the hints of all daemons.
type wide struct {
	*subscription
	end func()
}

func (w *wide) Close() {
	w.end()
	w.subscription.Close()
}

// holds reports whether a place's neurons run here, for all that this daemon may still believe.
func (d *daemon) holds(place neuron.Place) bool {
	return d.engine.Holding().Has(place) && d.engine.Believes() == nil
}
