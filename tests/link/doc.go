// Package link cuts the line between a real daemon and real python kernels, at every unit and every byte of both directions,
// and kills the daemon meanwhile: nothing that runs in the kernels may be lost or happen twice (P-210).
//
// The line runs through a proxy outside of both: the kernel's socket is renamed, and the proxy listens in its place. A run of
// the suite makes a few hundred cuts; `make soak WHAT=link CUTS=10000` makes as many as it is told.
package link
