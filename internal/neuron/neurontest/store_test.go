package neurontest

import (
	"flag"
	"testing"

	"soma/internal/neuron"
	"soma/internal/store/storetest"
)

// N-35: the fake keeps to the seam as the engines do. They run the suite's random part in full length, the fake a fifth.
func TestSuite(t *testing.T) {
	if err := flag.Set("rapid.checks", "20"); err != nil {
		t.Fatal(err)
	}
	storetest.Run(t, storetest.Engine{
		Open: func(*testing.T, []neuron.Sequence) neuron.Store { return New(neuron.DefaultLimits()) },
	})
}

// N-35, N-36
func TestSharedSuite(t *testing.T) {
	if err := flag.Set("rapid.checks", "5"); err != nil {
		t.Fatal(err)
	}
	storetest.Run(t, storetest.Engine{
		Open: func(*testing.T, []neuron.Sequence) neuron.Store { return NewShared(neuron.DefaultLimits()) },
		Take: func(_ testing.TB, s neuron.Store, f neuron.Fence, places neuron.PlaceSet) neuron.Fence {
			held := *f.Places
			for p, taken := range s.(*Store).Take(f.Node, places) {
				held[p] = taken.Epoch
			}
			f.Places = &held
			return f
		},
	})
}
