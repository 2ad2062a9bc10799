// Package recall remembers in little memory which deliveries a neuron has settled lately.
//
// It owns the set and its error. It must not know what the ids name nor how they are stored. It imports ident and the
// standard library.
package recall
