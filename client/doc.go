// Package client is the Go client of a Soma daemon: every route of its HTTP API as a method of [Client].
//
// Errors come in three kinds. A [*wire.Error] is the daemon's refusal, with a stable code. A [*LostError] (errors.Is
// [ErrLost]) means that nobody answered: the daemon is not there, or went away in the middle. Everything else is the
// caller's: an ended context, a token that cannot be read, an error of its own callback.
//
// Every write is a PUT or DELETE under an id that the caller has chosen, so after an ErrLost it may be made again with the
// same id and body: it happens once. Stop is the exception; made again it stops the daemon again. The client itself starts
// no daemon and repeats nothing, except that a request which met a connection that had died while idle goes out on a new one.
//
// It knows nothing of the daemon but package wire, and imports that and the standard library only.
package client
