// Package retention owns the commands that take away what was kept: rm and prune, with what they ask first and tell meanwhile.
//
// It knows the daemon by package client alone, and the program that it is a part of by the interface [Program]. It may import
// client, wire, config for the form of time spans, and the rooms exit and plain.
package retention
