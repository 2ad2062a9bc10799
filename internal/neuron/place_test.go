package neuron_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"soma/internal/neuron"
)

// N-36: a set of places holds what was put into it and not taken out, in order.
func TestPlaceSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s neuron.PlaceSet
		model := map[neuron.Place]bool{}
		for range rapid.IntRange(0, 300).Draw(t, "steps") {
			p := neuron.Place(rapid.IntRange(0, neuron.Places-1).Draw(t, "place"))
			if rapid.Bool().Draw(t, "add") {
				s.Add(p)
				model[p] = true
			} else {
				s.Remove(p)
				delete(model, p)
			}
		}
		all := slices.Collect(s.All())
		if len(all) != len(model) || s.Len() != len(model) || !slices.IsSorted(all) || neuron.PlacesOf(all...) != s {
			t.Fatalf("%v, length %d, want %v", all, s.Len(), model)
		}
		for p := range neuron.Places {
			if s.Has(neuron.Place(p)) != model[neuron.Place(p)] {
				t.Fatalf("place %d", p)
			}
		}
	})
	if s := neuron.AllPlaces(); s.Len() != neuron.Places || neuron.AllUnder(7).Held() != s {
		t.Errorf("all places are %d", s.Len())
	}
	var none *neuron.Epochs
	if none.Held().Len() != 0 || none.Has(3) {
		t.Error("no epochs hold places")
	}
	for range neuron.AllPlaces().All() { // an early end is heeded
		break
	}
}
