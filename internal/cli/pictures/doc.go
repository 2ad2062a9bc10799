// Package pictures owns how images are put before a person: inside of a terminal that can show them, and else in a file.
//
// It looks at the environment that it is given and knows no daemon; it imports the standard library only.
package pictures
