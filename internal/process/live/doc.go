// Package live keeps the text that running attempts at an inference have shown, for who joins late.
//
// It must not know neurons, stores or providers. It imports wire.
package live
