// Package graph is the connection graph: which facts of one neuron go to which other neuron besides those that hear them
// anyway. A connection is (id, source, alias, target, transform, expiry) inside one owner; it routes, and holds nothing of
// the work that it starts.
//
// The graph of an owner is a neuron, owner/graph/main: messages connect and disconnect, an alarm removes what has expired.
// Carrying asks no neuron: when a fact is emitted, and again right before the target's handler runs, the engine reads the
// row, and a guard in the target's commit holds only while the connection is live (neuron.Relay).
//
// It owns the table connection and the transforms. It must not know the engine nor what the connected neurons stand for. It
// imports neuron, ident, the standard library, and a JSON Schema package.
package graph
