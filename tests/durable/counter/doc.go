// Package counter is what the tests of the durable runtime count with: neurons whose every effect happens exactly once or is
// noticed, the stores that they live on, and the comparison at the end.
//
// It owns the messages and kinds. It must not know who runs them. It imports neuron and its rooms, and the stores.
package counter
