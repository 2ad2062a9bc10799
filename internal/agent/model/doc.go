// Package model owns the seam to language models (K-30): what a request holds, what a stream gives, the classes of errors
// (K-31) and the decision whether an attempt is made again. Adapters are its rooms; none of them retries by itself, for
// every attempt is numbered and written to the ledger by its caller (K-32).
//
// It must not know turns, stores or any one provider. It imports message and agent/tool.
package model
