// Package lifecycle owns how long-lived parts start and stop: [Group] runs the parts of a program together, [Tasks] owns
// the goroutines of one part, [SignalContext] is the root context of a main function.
//
// The contract of every long-lived part is the same: it has an owner, it stops when its context is done, its owner waits
// for it under a deadline, and what did not stop is named. A panic is caught at this door and becomes a [PanicError].
//
// It is a leaf: it knows no other room and imports the standard library only. Only this room and cmd/ make root contexts.
package lifecycle
