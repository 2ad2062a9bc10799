// Package pylines owns what can be told of python code by looking at its characters: whether a piece of code that a person
// types is whole, where its logical lines begin, and how far the next line is indented.
//
// It parses nothing: the python kernel does, and says so where the code is wrong. It is pure and imports the standard library only.
package pylines
