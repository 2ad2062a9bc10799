//go:build !crash

package crash

// Point marks a place where a crash test may kill the program. It does nothing in this build.
func Point(Name) {}

// Off reports whether a negative control has switched the fault on. It is false in this build.
func Off(Fault) bool { return false }
