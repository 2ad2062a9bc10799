// Package counter gives out the numbers of sequences in the order of commits, the same for all engines of storage.
//
// It owns what is known of counters and what the group under way has used. It must not know how rows are read and written:
// the engine tells it the last number of a row, and saves what moved. It imports neuron.
package counter
