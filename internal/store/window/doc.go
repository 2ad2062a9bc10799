// Package window says what of a neuron's journals a reader sees and which rows no window reaches any more, the same for all
// engines of storage.
//
// It owns the texts that read journals from turn rows, [Marks], and how times, deliveries and executions lie in rows. It must not know
// how statements are run: an engine hands in [Read]. It imports neuron.
package window
