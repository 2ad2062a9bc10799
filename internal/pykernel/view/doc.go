// Package view owns what programs and people are shown of python kernels: the list of them, what is known of the kernel of a
// branch, its jobs with their output, the output of cells that still run, and the images and traces that cells have left.
//
// It reads rows and asks the owners of python kernels; it starts none, writes nothing, and must not know how a kernel is run or
// spoken to, nor HTTP. It imports pykernel, neuron, ident and wire. Package daemon gives it the owners.
package view
