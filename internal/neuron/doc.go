// Package neuron is what the author of a handler sees of the durable runtime: identities, deliveries, typed messages, the
// turn, the record that a turn produces, executions, and the seam of the store that commits records.
//
// A neuron is a virtual actor, addressable for ever as owner/kind/key, activated on demand, one delivery at a time; its
// effects are committed before anyone sees them. A handler never writes: it returns values (a Record), which the room
// neuron/engine commits in one transaction with those of other neurons. What must stand before the handler goes on, such as
// the request of a call, is a Step, committed the same way while the turn runs.
//
// The package must not know what its neurons stand for. It imports ident and the standard library only.
package neuron
