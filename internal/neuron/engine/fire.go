package engine

import (
	"context"
	"encoding/json"
	"fmt"

	"soma/ident"
	"soma/internal/neuron"
)

// Fired is what a client says.
type Fired struct {
	// ID makes it happen once: a repeat within the dedupe window has no effect.
	ID ident.ID
	// Owner is the one in whose name it is said.
	Owner string
	// Client names the neuron that emits it where there is no receiver; empty means "main".
	Client string
	// To is the receiver, zero for all who hear the alias and all connections of the client's neuron.
	To      neuron.ID
	Alias   string
	Payload json.RawMessage
}

// Fire takes what a client says and returns after its commit. With a receiver it is a Send to it (N-40). Without one the
// client's neuron emits it: one fact in that neuron's outgoing feed, and a delivery for each receiver (N-21). Errors are
// those of Deliver; a receiver of another owner is a *neuron.Refusal with neuron.CrossOwner.
func (e *Engine) Fire(ctx context.Context, f Fired) error {
	to := f.To
	switch {
	case to.IsZero():
		to = neuron.Client(f.Owner, f.Client)
	case to.Owner != f.Owner:
		return neuron.SettleAs(neuron.CrossOwner, fmt.Errorf("%s is not of owner %q", to, f.Owner))
	}
	return e.Deliver(ctx, neuron.Delivery{ID: f.ID, Alias: f.Alias, Payload: f.Payload, Target: to})
}
