// Package price owns what tokens cost: a table of prices as data and integer arithmetic in nano-dollars (K-24). A model
// that no row knows costs "unknown", never 0.
//
// It must not know budgets, ledgers or providers. It imports message and a YAML library.
package price
