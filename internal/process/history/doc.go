// Package history keeps the messages of branches that are worked on in memory, within a bound.
//
// It must not know neurons, stores or providers: who has it read what is missing gives a function. It imports ident and message.
package history
