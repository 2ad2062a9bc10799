// Package lease decides which places a node holds, where several nodes share one database: it beats, takes places that are
// free or whose holder has stopped beating, gives back what is more than its share, and says when the node must no longer
// believe that it holds anything.
//
// It owns the policy, the loops, and the seam of the store behind them. It must not know what runs at a place: the engine
// gains and releases places through a small interface. It imports neuron, ident and the standard library.
package lease
