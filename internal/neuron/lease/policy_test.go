package lease

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"soma/internal/neuron"
)

// table returns one in which the named nodes are alive and hold what is said.
func table(alive []string, holder func(neuron.Place) string) *Table {
	var t Table
	for _, id := range alive {
		t.Nodes = append(t.Nodes, Node{ID: id, Alive: true})
	}
	for p := range neuron.AllPlaces().All() {
		t.Places[p] = Held{Holder: holder(p), Epoch: 7}
	}
	return &t
}

func of(t *Table, id string) (s neuron.PlaceSet) {
	for p := range neuron.AllPlaces().All() {
		if t.Places[p].Holder == id {
			s.Add(p)
		}
	}
	return s
}

// N-36: alone a node takes everything that is free or was left behind, and nothing that is held.
func TestDecideAlone(t *testing.T) {
	tab := table([]string{"a"}, func(p neuron.Place) string { return []string{"", "dead"}[p%2] })
	tab.Nodes = append(tab.Nodes, Node{ID: "dead"})
	if p := decide(tab, "a", neuron.PlaceSet{}); p.take != neuron.AllPlaces() || p.give != 0 {
		t.Errorf("takes %d, gives %d", p.take.Len(), p.give)
	}
	if p := decide(tab, "a", neuron.AllPlaces()); p.take.Len() != 0 || p.give != 0 {
		t.Errorf("with all in hand it takes %d, gives %d", p.take.Len(), p.give)
	}
}

// N-36: the places of the node's own ended life are taken whatever the share, and what is too much is given back.
func TestDecideOwnPlaces(t *testing.T) {
	tab := table([]string{"a", "b"}, func(p neuron.Place) string {
		if p < 200 {
			return "a"
		}
		return "b"
	})
	p := decide(tab, "a", neuron.PlaceSet{})
	if p.take != of(tab, "a") || p.give != 72 {
		t.Errorf("takes %d, gives %d", p.take.Len(), p.give)
	}
	if p := decide(tab, "b", of(tab, "b")); p.take.Len() != 0 || p.give != 0 {
		t.Errorf("the other one takes %d, gives %d", p.take.Len(), p.give)
	}
}

// N-36: from any start, nodes that follow the policy come to a fair share within a few rounds, and then nothing moves.
func TestDecideIsFairAndRests(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "nodes")
		var ids []string
		for i := range n {
			ids = append(ids, fmt.Sprintf("node-%d", i))
		}
		held := map[string]neuron.PlaceSet{}
		tab := table(ids, func(p neuron.Place) string {
			return rapid.SampledFrom(append([]string{"", "gone"}, ids...)).Draw(t, "holder")
		})
		for _, id := range ids {
			if rapid.Bool().Draw(t, "running") {
				held[id] = of(tab, id)
			}
		}
		moved := 0
		for round := range 6 {
			moved = 0
			for _, id := range rapid.Permutation(ids).Draw(t, "order") {
				p := decide(tab, id, held[id])
				mine := held[id]
				for place := range mine.All() {
					if p.give == 0 {
						break
					}
					p.give--
					moved++
					mine.Remove(place)
					tab.Places[place].Holder = ""
				}
				for place := range p.take.All() {
					if h := tab.Places[place].Holder; h != id && h != "" && h != "gone" {
						t.Fatalf("%s wants place %d of %s", id, place, h)
					}
					moved++
					mine.Add(place)
					tab.Places[place].Holder = id
				}
				held[id] = mine
			}
			if moved == 0 && round > 0 {
				break
			}
		}
		if moved != 0 {
			t.Fatalf("places still move after six rounds")
		}
		share := (neuron.Places + n - 1) / n
		total := 0
		for _, id := range ids {
			if l := held[id].Len(); l > share {
				t.Fatalf("%s holds %d, more than %d", id, l, share)
			}
			total += held[id].Len()
		}
		if total != neuron.Places {
			t.Fatalf("%d places are held", total)
		}
	})
}

// N-36: a place is lost when the table gives it to another or under another epoch; one that moved while the table was read is
// not.
func TestLost(t *testing.T) {
	held := func(places ...neuron.Place) neuron.Fence {
		var e neuron.Epochs
		for _, p := range places {
			e[p] = 7
		}
		return neuron.Fence{Node: "a", Places: &e}
	}
	tab := table([]string{"a", "b"}, func(p neuron.Place) string { return []string{"a", "b"}[p%2] })
	for _, c := range []struct {
		before, after neuron.Fence
		place         neuron.Place
		lost          bool
	}{
		{held(0, 2), held(0, 2), 0, false},
		{held(0, 3), held(0, 3), 3, true},
		{held(0, 3), held(0), 0, false},
		{held(0), held(0, 3), 0, false},
		{held(), held(), 0, false},
	} {
		if p, gone := lost(tab, c.before, c.after); gone != c.lost || p != c.place {
			t.Errorf("place %d, lost %v, want %d, %v", p, gone, c.place, c.lost)
		}
	}
	tab.Places[2].Epoch++
	if p, gone := lost(tab, held(0, 2), held(0, 2)); !gone || p != 2 {
		t.Errorf("place %d, lost %v under another epoch", p, gone)
	}
}
