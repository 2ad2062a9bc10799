// Package neurontest is a neuron store in memory, for tests of what lies above the seam. It passes the suite of engines as
// far as that needs no SQL. Production code never imports it.
//
// It runs no statements: an operation that implements Applier changes its one table of texts. It imports neuron, neuron/lease and ident.
package neurontest
