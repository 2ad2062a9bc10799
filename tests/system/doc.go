// Package system tests the whole program: daemon, command line and python kernels as OS processes of their own, in a home
// that is made for the test.
//
// The crash suite needs the build tag crash, which gives the program its named points of death (internal/crash). It knows
// the program through its binary, its API and, for what no answer may show, a copy of its database; it imports what it
// likes, as tests do.
package system
