// Package frame is the codec of the python kernel's protocol (protocol/pykernel/SPEC.md): units on a byte stream, and the
// shapes that they may have when they come from a python kernel.
//
// It must not know connections, sequence or what a frame leads to. It imports pykernel and the standard library only.
package frame
