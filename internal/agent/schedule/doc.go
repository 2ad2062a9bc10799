// Package schedule owns the question which ready process runs next: an event-driven queue with a bound on how many run at
// once (K-16, K-17). Its owner says what happened and asks for the next decision; nothing here waits or polls.
//
// It must not know why a process is ready, nor clocks, goroutines or stores. It imports ident only.
package schedule
