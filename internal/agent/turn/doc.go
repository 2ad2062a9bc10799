// Package turn owns two things: the states of an agent process with the table of moves between them (K-01), and the turn
// machine, a pure function from state and event to state and effects (K-06). A host performs the effects and commits them
// with the state.
//
// It must not know clocks, goroutines, stores, providers or python kernels: every time comes in with the event. It imports
// message for names and agent/model for the classes of provider errors.
package turn
