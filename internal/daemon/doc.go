// Package daemon is the wiring room: it alone knows how the parts of a running Soma are put together, in which order they
// start and stop, and what each is told after a commit. It holds no logic of its own beyond that.
//
// It may import every internal room but cli; nothing imports it but cmd and cli's tests.
package daemon
