// Package wake owns what a process is told when work in the background has ended: which ends one wake tells of, which of them
// were read in the meantime, and the words for people and for the model.
//
// It is pure: it must not know neurons, stores, clocks or the turn machine. It imports pykernel for the messages of ends.
package wake
