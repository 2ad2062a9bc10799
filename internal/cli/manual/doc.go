// Package manual puts the command tree into words outside the program: the man pages, and the pieces of which the guide is
// made. It must not know what the commands do. It imports the command-line library only.
package manual
