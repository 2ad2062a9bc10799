// Specrows is the keeper of the requirement tables in docs/spec: it checks that each row marked done names tests that exist
// and carry the row's id, lists rows, and marks them.
//
//	specrows verify
//	specrows list   ROWS...
//	specrows mark   ROWS...
//	specrows unmark ROWS...
//
// ROWS are ids (N-07), ranges of ids (N-01..N-15) or @FILE with both. It runs anywhere inside the module, without network.
//
// It is a tool for developers: it knows the layout of docs/spec and how tests look in Go, Python and testscript, and
// nothing of the product. It imports the standard library only.
package main
