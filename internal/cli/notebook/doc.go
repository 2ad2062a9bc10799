// Package notebook owns notebooks of format 4 (.ipynb): reading one, running its code cells in order, and writing their outputs
// back without touching the rest.
//
// It runs cells by a function and knows no daemon. It may import wire and the rooms exit, plain and pylines.
package notebook
