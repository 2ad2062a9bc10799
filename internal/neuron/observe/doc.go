// Package observe is what the engine of the neurons tells of its work, for diagnosis.
//
// It owns the form of what is told. It must not know who listens, nor how turns are run. It imports ident and the standard
// library.
package observe
