// Package plaintext owns how text of others loses what would speak to a terminal. It is a leaf and imports the standard library
// only.
package plaintext
