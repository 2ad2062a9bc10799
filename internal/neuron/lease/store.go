package lease

import (
	"context"
	"time"

	"soma/internal/neuron"
)

// NodeInfo is what a node tells the others of itself with each beat.
type NodeInfo struct {
	// URL is where the node is reached, empty when it is not; Cert the fingerprint of its certificate, empty without TLS.
	URL, Cert string
}

// Node is a row of the table of nodes.
type Node struct {
	ID    string
	Epoch uint64 // of its newest life
	URL   string
	Cert  string
	Beat  time.Time // by the server's clock; zero: it has left
	// Alive says that the beat is not older than the lease, by the server's clock.
	Alive bool
}

// Held is who holds a place, and the epoch of its last acquisition; an empty Holder is nobody.
type Held struct {
	Holder string
	Epoch  uint64
}

// Table is what a beat has read, all of one moment.
type Table struct {
	Now    time.Time // the server's clock
	Nodes  []Node
	Places [neuron.Places]Held
}

// Store is the side of the database: one that several nodes share fills it. Its methods are safe for concurrent use and
// end with their context. Claim of the neuron store leaves the places of an ended life with their node, under epochs that no
// fence has: so whoever takes them learns that they were not given. What a node with an ended life asks for fails with neuron.ErrFenced.
type Store interface {
	// Beat writes the node's beat by the server's clock, unless a newer life of the node has begun, and reads the table.
	Beat(ctx context.Context, fence neuron.Fence, info NodeInfo) (Table, error)
	// Take makes the node of fence the holder of those of the places that are free, that the table says are its own, or
	// whose holder's beat is older than the lease, under a new epoch each, and returns what it took. It waits for no one
	// longer than a second: the transactions of a holder that was left behind are ended.
	Take(ctx context.Context, fence neuron.Fence, places neuron.PlaceSet) (map[neuron.Place]neuron.Taken, error)
	// Give frees the places that fence still holds.
	Give(ctx context.Context, fence neuron.Fence, places neuron.PlaceSet) error
	// Leave does Give for all places and ends the node's beat, so that nobody waits for its lease to lapse.
	Leave(ctx context.Context, fence neuron.Fence) error
	// Announce tells the other nodes what has been committed for places that they hold, by the zero hint that places have
	// become free. It may be lost.
	Announce(ctx context.Context, hints []neuron.Hint) error
	// Listen calls fn with what others announce, for whichever place, until ctx ends or the connection breaks.
	Listen(ctx context.Context, fn func([]neuron.Hint)) error
}
