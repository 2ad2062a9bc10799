// Package hook owns the closed catalogue of the points at which a session lets others look in or object: their names, which of
// them can prevent what they announce, which leave a record, and who emits them.
//
// It holds no handlers and calls none: the library's bus (package session) and the daemon use the same table. It is a leaf: it
// knows no session, agent or store, and imports the standard library only.
package hook
