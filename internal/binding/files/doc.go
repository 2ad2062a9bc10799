// Package files owns the binding `files` of the cells: reading, writing, editing, finding and searching text files of the
// person's machine, and the trace of what a cell changed through it (P-066). All of it runs in the python kernel; there are
// no host calls.
//
// It must not know sessions or the daemon. It imports binding and pykernel/bundle.
package files
