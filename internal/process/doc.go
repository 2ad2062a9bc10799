// Package process is an agent living in a neuron: here the durable runtime (neuron), the pure turn machine (agent) and the
// python kernels (pykernel) meet.
//
// It owns the neurons owner/session/<id> and owner/process/<pid>, the messages they handle, the tables session, branch,
// message, input, process, tool_call, ledger, cell and event, the scheduler's loop, and the execution "inference". What a
// person or program asks for enters as a delivery; what they read are committed rows.
//
// It must not know HTTP, the command line, or an engine of storage. It imports neuron, agent, pykernel, message, ident, wire
// and crash; what it needs of its own tier it declares as interfaces that daemon fills.
package process
