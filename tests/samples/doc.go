// Package samples records answers and events of a running daemon and holds them against the description of its API: every
// route, and every kind of event that a short scripted work with cells, a py session, signals, refusals and streams brings.
//
// The daemon is the program itself, as an OS process of its own with a home of its own, a script for a model and real python
// kernels. The package speaks plain HTTP, so that nothing between it and the wire can hide what is there.
package samples
