// Package lineedit owns the editing of what a person types at a terminal: keys out of bytes ([Decoder]), the text, its history
// and the search in it ([Editor]), the rows that show it ([View]) and what a terminal is sent to show them ([Screen]).
//
// All of it is pure but for the writer of a Screen; it opens no terminal and reads nothing. It must not know what the text is
// for: whether it is whole, how it is indented and completed is told by functions. It imports the standard library and
// displaywidth, which knows how wide characters are.
package lineedit
