// Package engine runs neurons: it activates them on demand, runs one delivery of each at a time on a fixed set of workers,
// commits what their turns return in groups, drains the outbox, runs executions, and recovers all of it after a crash.
//
// Nothing a turn does is visible before its commit: state, journals, sends and answers follow it. The way of a delivery:
//
//	Deliver, Accept, outbox ─→ mailbox ─→ worker (duplicate check, handler) ─→ committer (group, fsync) ─→ apply
//	   ─→ Committed hook ─→ watchers ─→ new outbox rows into their lanes ─→ executions ─→ callers
//
// It owns the run queue, the committer, the lanes of the outbox, alarms, executions and passivation. It must not know what
// its neurons stand for nor how rows are stored: it knows neuron.Store. It imports neuron, ident, feed, lifecycle, crash
// and the standard library.
package engine
