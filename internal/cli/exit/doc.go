// Package exit owns how the command line ends: the exit codes, the errors that carry one and say what to do, and the line in
// which an error is told. It may import client, wire, config, pypath, neuron for its errors, and plain.
package exit
