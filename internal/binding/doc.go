// Package binding owns what appears in the namespace of a python kernel beside Python itself: the shape of one binding (a
// Python module, the rules that a model reads, the Go routes behind it), and the router that answers host calls (P-026, P-027).
// Each binding is a room below this one, its Go and its Python files side by side.
//
// It must not know sessions, stores or how a host call reached the daemon: a route gets a Caller, and a binding that needs
// more declares a small interface. It imports neuron (identities, policies), pykernel (the error of a call), pykernel/bundle
// (a module's source) and ident.
package binding
