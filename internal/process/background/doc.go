// Package background reads from committed rows what runs behind a branch's back: cells and jobs of its python kernel that are
// waited for, and those that ended with it.
//
// It must not know neurons, sessions or the turn machine. It imports cells and wake for how rows are read and told, and reads the tables cell and job.
package background
