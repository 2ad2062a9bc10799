// Package sqlite is the store's engine for one home: one SQLite file, WAL, synchronous FULL.
//
// It owns the file, its migrations, the one writing connection, the pool of reading ones and the checkpoints of the WAL, and
// it fills [neuron.Store]. What a commit writes besides the tables of the store and of neurons are the operations of the
// records: their tables belong to other rooms.
//
// It must not know what neurons stand for, and no session, agent or python kernel. It imports neuron, ident and crash.
package sqlite
