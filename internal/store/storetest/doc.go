// Package storetest is the one suite that every engine of storage passes. Production code never imports it.
//
// It knows the seam [neuron.Store] only: an engine is what its [Engine] opens. It imports neuron and ident.
package storetest
