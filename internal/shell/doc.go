// Package shell owns the commands that people give for a session's workspace: each runs once, as OS processes of the daemon's
// user, never in a python kernel, and what it prints is kept for people and for the session's own agent.
//
// A command is an execution of a neuron beside the session's. It must not know agents, python kernels or HTTP. It imports neuron,
// lifecycle, osproc, plaintext, ident and wire.
package shell
