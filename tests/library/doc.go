// Package library proves that the session library can be used from outside: the example module is built and run as a program of
// another module, with what lies in this tree and nothing from the network.
package library
