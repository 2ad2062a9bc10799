// Package stores owns the commands that move whole stores: store copy, backup and restore, with what a person is told of them.
//
// It talks to no daemon. It knows the program that it is a part of by the interface [Program]. It may import config, the rooms of
// store, exit and plain.
package stores
