// Package doctor owns the command that checks everything that Soma needs on a machine; it changes nothing and starts no daemon.
//
// It looks at the home, asks a daemon that runs, and imports the client, config and the other rooms of the command line; the
// program that it is a part of comes as an interface.
package doctor
