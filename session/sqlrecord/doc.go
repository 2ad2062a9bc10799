// Package sqlrecord writes what happens in a session into a database, for programs that use package session without a
// daemon.
//
// A [Recorder] is a subscriber from outside: it is bound to one observer, one session id and one store, and gives the store
// a row for each event that the observer dispatches. [Table] is a store on [database/sql], for SQLite and PostgreSQL: the
// program opens the database with the driver of its choice, nothing is opened here and no path is known. Other stores need
// one method.
//
// It imports session, ident and the standard library only; it knows no driver, no daemon and nothing of its tables.
package sqlrecord
