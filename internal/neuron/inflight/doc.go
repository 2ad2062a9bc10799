// Package inflight remembers, over a kill of the program, which deliveries were running in it: a file mapped into memory.
//
// It owns the file's format and the counts of crashes that no row can hold. It must not know what is delivered nor what is
// done about a crash. It imports ident and the standard library.
package inflight
