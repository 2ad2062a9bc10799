// Package fault wraps a [neuron.Store] and makes its calls fail, hang or lose their answer, as tests ask for.
//
// It owns no data and must not know which engine it wraps. It imports neuron and ident; production never imports it.
package fault
