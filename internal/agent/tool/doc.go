// Package tool owns what a model may call: definitions with their JSON Schemas, the check of a call's arguments (K-11), the
// one native tool `python` (K-46), and how a cell's result is put into words for the model within its cap (K-15, P-036).
//
// It must not know who runs a tool, nor providers, stores or python kernels. It imports message and a JSON Schema library.
package tool
