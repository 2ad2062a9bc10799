// Package supervise owns all python kernels of one node: it boots them, attaches to those that outlived an earlier daemon,
// carries their frames over the room link, brings outcomes to their owners, and ends them with the groups of their jobs. What it
// last heard of each it shows at once to whoever observes or watches; only an ask waits for the python kernel itself.
//
// It must not know agents, sessions or the store: it reads rows through neuron.Reader, and what it writes goes through the
// interface Neurons. It may import neuron, pykernel and its rooms, osproc, config, crash, lifecycle and ident.
//
// A frame is sent only after its commit (the commit hook calls Committed); a frame from a python kernel is acknowledged
// only after what follows from it is committed. Each python kernel has one owner goroutine; nothing runs on a timer while
// no cell is open.
package supervise
