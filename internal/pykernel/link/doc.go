// Package link is the session layer between the daemon and one python kernel: sequence numbers, acknowledgements and
// replays over connections that come and go. Nothing is lost or repeated by a cut.
//
// A Link outlives its connections; Serve runs one of them. It must not know processes, cells or the store: who uses it
// appends frames that are committed already, and settles the frames that it was given once what follows is committed. It
// imports pykernel/frame, pykernel, crash, lifecycle and the standard library only.
package link
