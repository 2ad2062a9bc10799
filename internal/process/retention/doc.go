// Package retention owns how long stored things stay: it removes sessions with everything that is theirs, keeps the sums of
// what they cost (table ledger_sum), clears away technical rows beyond their bounds, and tells how large everything is.
//
// A removal begins with a turn of the session, which marks it; what follows goes in commits of at most 256 rows and goes on
// after a crash. Other sessions are not touched. The package must not know HTTP or an engine of storage. It may import
// process, neuron, pykernel, ident, wire, crash and lifecycle; what it needs of others it declares as interfaces.
package retention
