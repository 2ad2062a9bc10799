// Package pypath owns finding the python interpreter that cells run with: which one is meant, whether it is new enough, and
// the absolute path of the real interpreter behind a shim.
//
// It must not know what the interpreter is for: no python kernel, session or daemon. It reads no environment of its own.
//
// It is a leaf: it imports the standard library only.
package pypath
