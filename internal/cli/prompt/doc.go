// Package prompt owns the interactive prompt of `soma py`: what a line that a person has typed means, the loop that edits, runs and
// interrupts, and the history file.
//
// Cells run in the daemon, through [Kernel]: an interrupt ends the cell and not the kernel, and the end of this loop ends nothing.
// It must not know how cells are run and shown. It may import lineedit, pylines and plain.
package prompt
