// Package recent owns a bounded memory of values that never become wrong.
//
// It must not know what they are. It imports the standard library only.
package recent
