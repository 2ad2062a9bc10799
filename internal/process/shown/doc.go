// Package shown remembers processes as they were last read, so that who signals one need not read it again.
//
// It must not know neurons, stores or the turn machine. It imports ident and wire.
package shown
