// Package shell owns what the command line does with a command that a person gives for the workspace of a process.
//
// It asks the daemon by the client, and imports the client, wire and the other rooms of the command line; the program that it is a
// part of comes as an interface.
package shell
