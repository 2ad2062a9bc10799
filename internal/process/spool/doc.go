// Package spool owns the files in which complete answers wait for their commit (docs/formats/spool.md).
//
// It must not know what an answer is. It imports ident and the standard library only.
package spool
