// Package measure is what the bench programs share: the closed loop of clients, the line that a figure is printed as, and
// the check of what a measurement stands on.
//
// It must not know what is measured. It imports the standard library and x/sys only.
package measure
