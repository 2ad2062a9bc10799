// Package folder owns the python session of a folder as the command line uses it: finding and opening it, giving cells to it, and
// what the prompt of `soma py` needs of it ([Kernel]).
//
// How a cell is shown is told by a function; the program that it is a part of comes as the interface [Program]. It may import
// client, wire, ident, internal/pypath and the rooms exit, prompt and shell.
package folder
