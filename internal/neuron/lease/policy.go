package lease

import (
	"time"

	"soma/internal/neuron"
)

// plan is what a node does about its places once it has read the table.
type plan struct {
	take neuron.PlaceSet // to ask for
	give int             // how many of the held ones are more than its share
}

// decide compares the table with the places whose neurons run at node self. A share is an equal part of all places, rounded
// up: so shares cover all places, and a node within its share gives nothing. The places of its own ended life are taken
// whatever the share, because nobody else can: the table shows this node alive.
func decide(t *Table, self string, held neuron.PlaceSet) plan {
	alive := map[string]bool{self: true}
	for i := range t.Nodes {
		if t.Nodes[i].Alive {
			alive[t.Nodes[i].ID] = true
		}
	}
	share := (neuron.Places + len(alive) - 1) / len(alive)
	var p plan
	for i, h := range t.Places {
		if place := neuron.Place(i); h.Holder == self && !held.Has(place) {
			p.take.Add(place)
		}
	}
	mine := held.Or(p.take).Len()
	p.give = max(0, mine-share)
	// Nodes look for free places from different ends, so that those who ask at the same time seldom ask for the same.
	start := neuron.PlaceOf(self)
	for i := 0; i < neuron.Places && mine < share; i++ {
		place := start + neuron.Place(i)
		if held.Has(place) || p.take.Has(place) || alive[t.Places[place].Holder] {
			continue
		}
		p.take.Add(place)
		mine++
	}
	return p
}

// lost reports whether the table says that a place is not held which the node held before the table was read and holds
// after it, both times under the same epoch.
func lost(t *Table, before, after neuron.Fence) (neuron.Place, bool) {
	for p := range before.Places.Held().All() {
		epoch := before.Places[p]
		if !after.Places.Has(p) || after.Places[p] != epoch {
			continue
		}
		if h := t.Places[p]; h.Holder != before.Node || h.Epoch != epoch {
			return p, true
		}
	}
	return 0, false
}

// soonest is how long it takes at least until another node's lease lapses, with a little more: who looks then takes its places
// as soon as that may be.
func soonest(t *Table, self string, lease time.Duration) time.Duration {
	wait := lease
	for _, n := range t.Nodes {
		if n.Alive && n.ID != self {
			wait = min(wait, n.Beat.Add(lease).Sub(t.Now))
		}
	}
	return max(wait, 0) + lease/200
}
