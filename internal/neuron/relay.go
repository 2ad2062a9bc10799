package neuron

import (
	"context"
	"encoding/json"
	"time"
)

// Relay is the connection graph as the engine sees it. Its methods are called from several goroutines at once.
type Relay interface {
	// Connections returns the receivers of the live connections from d.Caller for d.Alias at the time d.At, at
	// most limit, in any order.
	Connections(ctx context.Context, d *Delivery, limit int) ([]Receiver, error)
	// Carry reads the live connection d.Via and returns what its target gets of d. It is asked right before the target's
	// handler runs. A settled error means that nothing is carried: MissingConnection, or what is wrong with the transform.
	Carry(ctx context.Context, d *Delivery, now time.Time) (Carried, error)
}

// Carried is what a connection brings to its target.
type Carried struct {
	Alias   string
	Payload json.RawMessage
	// Guard is committed with the target's turn: it holds only while the connection is live. Its Guard error is a *Refusal.
	Guard Guarded
}
