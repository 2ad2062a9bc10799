// Package osproc owns how OS processes of this machine are told apart, watched and ended: by pid and start time through a pidfd, by
// group, by a mark in their environment, by the lock that they hold.
//
// It must not know what the processes are for. It imports the standard library and x/sys only.
package osproc
