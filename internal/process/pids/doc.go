// Package pids owns the numbers of processes: each is given once, by whichever node, and they rise on each node.
//
// It must not know processes. It imports neuron for writes and ident.
package pids
