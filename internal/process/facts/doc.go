// Package facts tells, for the evidence of what happened, what processes and sessions know of a delivery: the input it
// brought, the provider's attempt whose answer it is with its tokens and cost, the calls and cells that it began, and the
// python kernels that began or ended with them.
//
// It reads committed rows of the rooms process and pykernel and writes nothing. It may import process, neuron with its rooms,
// agent, pykernel, wire and lower rooms.
package facts
