// Package bundle owns the Python sources on disk: the digest that names a tree, and the directory that live python kernels
// run from, unpacked once for each digest.
//
// It must not know processes or the protocol. It imports pykernel/python and the standard library only (flock from
// golang.org/x/sys).
package bundle
