// Package daemonlog owns daemon.log: a file of bounded size with two older ones beside it, which also takes the last words
// of a runtime that dies.
//
// It must not know what is logged. It is a leaf: it imports x/sys and the standard library only.
package daemonlog
