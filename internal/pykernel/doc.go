// Package pykernel is what the rest of the daemon sees of the detached python kernels: the frames, the rows of the tables
// kernel, kernel_frame, kernel_inbox, kernel_call, job and cell_trace as write operations, what is observed of a live one, and the
// messages that bring outcomes to its owner.
//
// All frames to a python kernel pass the committer, which numbers them in commit order (P-213): whoever wants a cell to run
// commits an AppendFrame; the room supervise sends it afterwards. The package must not know neurons, agents or sessions;
// it imports ident and the standard library only. Its rooms: frame (the codec), link (the session layer of one
// connection), bundle (the embedded sources), supervise (boot, attach, end).
package pykernel
