// Package agent names the area of the agent kernel: what an agent process is and how it decides, apart from where it is
// stored and who runs it. It holds no code itself; its rooms are
//
//   - turn: process states and the turn machine, pure;
//   - schedule: which ready process runs next, pure;
//   - price: what tokens cost, pure;
//   - tool: definitions of tools, their arguments and results as a model sees them, pure;
//   - model: the seam to language models, with one room per adapter (openai, script), which do I/O.
//
// The area must not know neurons, stores, sessions or python kernels. Its rooms import message, ident and each other.
package agent
