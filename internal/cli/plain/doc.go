// Package plain owns how the command line puts things into plain text: columns, amounts, and text of others without what would
// speak to the terminal. It knows no daemon.
package plain
