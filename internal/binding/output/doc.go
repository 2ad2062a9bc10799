// Package output owns the name `output` of the cells: pages of what cells and jobs have written, which the python kernel
// reads by itself (P-057, P-131), and of what a person's shell commands printed, which it asks the daemon for (P-061).
//
// It must not know who runs shell commands or keeps their output: that is behind Shells. It imports binding, neuron (the
// policy of its route) and ident.
package output
