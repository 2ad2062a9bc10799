// Package docs holds the documents to the program: what they name exists, what they copy from the code is equal, and what
// has to be said in certain words is.
//
// It reads files of the repository and starts nothing.
package docs
