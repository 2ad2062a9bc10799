// Package cli owns the command line: the tree of commands with their flags, texts and exit codes, the transcript as a person
// reads it, and how a client gets and keeps a daemon: starting one, and going on from its cursor when it was lost.
//
// Its rooms: exit (how it ends), plain (things as text), manual (what describes it), evidence (commands that look back).
//
// It knows the daemon by its HTTP API alone, through package client; `serve` runs a function that it is given ([Hooks]). It
// must not know the store, neurons, agents or python kernels. It may import client, wire, message, ident, config,
// daemonlog, lifecycle and pypath.
package cli
