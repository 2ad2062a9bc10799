// Package run owns the names `run` and `jobs` of the cells: commands as OS processes that outlive their cell, their output and
// their end. All of it happens in the python kernel; the daemon only hears frames of it, so there are no routes.
//
// It must not know who keeps jobs or wakes anybody. It imports binding and pykernel/bundle only.
package run
