// Package cells owns the table cell: the writes of its rows, how a row is read as the cell that clients see, and which cells run.
//
// It must not know neurons' states, sessions or agents. It imports neuron for places and writes, pykernel for outcomes, ident and
// wire.
package cells
