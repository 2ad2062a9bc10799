// Package session coordinates the conversations of a program: a [Session] owns a set of branches, and gives them what they
// share.
//
// A [Branch] is one conversation: messages in order, tools, a model, a log. Joining a session (Include, NewBranch, Split)
// gives it the session's operations, its [Observer], its [HookBus], its mailbox, and the session's [Memory] if it has no
// store of its own. A branch belongs to at most one session.
//
//   - [Observer]: what happens is emitted as events: a gate may deny each, a bounded history keeps it, routes sort it into
//     streams, handlers are called.
//   - [HookBus]: handlers at fixed points (package hook); at two of them a handler can prevent what is about to happen.
//   - [Operations]: functions by name, which all members of the session can run.
//   - [Mail]: mailboxes between branches; package session/exchange fills it.
//
// Nothing here reaches for a database or the network, and nothing runs in the background: what starts a goroutine waits for
// it. All types are safe for use by several goroutines unless their text says otherwise. No lock is held while a handler, a
// gate, a tool, an operation or a callback of the program runs, so these may use the session again.
//
// The package knows neither flows nor exchanges (packages session/flow and session/exchange build on it), no store and no
// agent of the daemon. It imports message, hook, ident and the standard library only.
package session
