// Package fifo is the queue of mailboxes, lanes and commits.
//
// It owns how a queue grows and gives its memory back. It must not know what waits in it, and imports the standard
// library only.
package fifo
