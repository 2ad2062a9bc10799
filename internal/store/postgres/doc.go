// Package postgres is the store's engine for several daemons that share one PostgreSQL database.
//
// It owns the connections, the migrations, the pipelined commit with its fence, the leases of places and the hints between
// nodes, and it fills [neuron.Store]. What a commit writes besides the tables of the store and of neurons are the operations
// of the records: their tables belong to other rooms, and their texts are those that SQLite runs too.
//
// It must not know what neurons stand for, and no session, agent or python kernel. It imports neuron, ident, crash and the
// rooms of store that both engines share.
package postgres
