// Package mcp owns `soma mcp`: the python kernel of a folder as an MCP server on the standard input and output, for any MCP
// client, in both eras of the protocol (the handshake of 2025-11-25 and before, the stateless requests of 2026-07-28).
//
// The server keeps nothing that has to last: code, results and jobs are the daemon's, found again by the folder. A client
// that dies and comes back finds its names, and a cell goes on whoever watches it.
//
// It knows the daemon by package client alone, and the program that it is a part of by the interface [Program]. It may import
// client, wire, ident, agent/tool for the words of a result, the MCP SDK, and the rooms exit and plain.
package mcp
