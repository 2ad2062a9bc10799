// Package shorten owns how long the body of an event may be: what is cut of its texts so that it stays valid, and the JSON that it is
// written in.
//
// It may import message, wire and the standard library.
package shorten
