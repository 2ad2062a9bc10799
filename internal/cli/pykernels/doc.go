// Package pykernels owns the commands that show python kernels and their jobs, follow and stop jobs, and restart kernels.
//
// It asks the daemon by the client and knows nothing of how a kernel is run. It imports the client, wire and the other rooms of
// the command line; the program that it is a part of comes as an interface.
package pykernels
