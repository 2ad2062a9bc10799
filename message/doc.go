// Package message owns what one conversation is made of: messages, tool calls, provider-opaque blocks and token usage, and
// the rule that history is always paired (K-09).
//
// It is a leaf: it knows no provider, store, neuron, agent or session, and imports the standard library only.
package message
