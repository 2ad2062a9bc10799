package neurontest

import (
	"testing"

	"soma/internal/neuron"
	"soma/internal/store/storetest"
)

// N-35: the fake keeps to the seam as the engines do.
func TestSuite(t *testing.T) {
	storetest.Run(t, storetest.Engine{
		Open: func(*testing.T, []neuron.Sequence) neuron.Store { return New(neuron.DefaultLimits()) },
	})
}
