// Package evidence owns what the daemon can prove of the past: the journals of neurons, dead letters, and the trace of one
// correlation, put together from journals, outbox, dead letters, executions and what the domain knows of them.
//
// It reads only, but for re-driving and discarding dead letters, which the engine does. There is no index by correlation: a
// trace starts at a delivery, whose id is indexed, and walks from neuron to neuron through the windows of their journals.
// Everything is bounded: neurons, nodes, time. What is not kept any more is shown as a gap, never left out.
//
// It must not know what its neurons stand for: [Domain] tells of that. It may import neuron, wire and lower rooms.
package evidence
