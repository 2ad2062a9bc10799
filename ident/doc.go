// Package ident owns the identifiers that rows, frames and deliveries carry: a 16-byte time-ordered ID and its text form,
// and the process number PID.
//
// It is a leaf: it knows no store, neuron, agent or session, and imports the standard library only.
package ident
