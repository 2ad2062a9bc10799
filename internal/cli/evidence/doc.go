// Package evidence owns the commands that look back: journal, deadletters and trace, with the form in which a person reads
// what they tell.
//
// It knows the daemon by package client alone, and the program that it is a part of by the interface [Program]. It may import
// client, wire, feed cursors by wire, and the rooms exit and plain.
package evidence
