// Package cells owns the binding `cells`: code that looks at the cells of its branch, stops them, and runs a failed one again
// with edits (P-035, P-043). What runs and the newest results are in the python kernel; the host calls here read the committed
// rows of older ones, of the caller's own branch only.
//
// It must not know how rows are stored: daemon fills Rows. It imports binding, ident, neuron (policies) and wire.
package cells
