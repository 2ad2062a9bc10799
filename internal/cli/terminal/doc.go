// Package terminal owns a terminal while a program reads its keys one by one: its mode, the bytes that are typed, its size and
// the rest of a suspended program. What it was before, it is again afterwards.
//
// It must not know what is typed. It imports the standard library and x/sys.
package terminal
