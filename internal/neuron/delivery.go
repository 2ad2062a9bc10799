package neuron

import (
	"encoding/json"
	"time"

	"soma/ident"
)

// Lane separates deliveries of one sender to one target that must not wait for each other.
type Lane uint8

// The lanes: a signal overtakes queued mail.
const (
	Mail   Lane = 0
	Signal Lane = 1
)

// Delivery is one message on its way to a neuron (N-03). It is a value; its payload is a snapshot that nobody changes.
type Delivery struct {
	// ID names the delivery, over all targets: a repeat within the dedupe window has no effect, and so has another delivery
	// under the same ID, to whomever.
	ID ident.ID `json:"id"`
	// Alias is the permanent name of the payload's type.
	Alias string `json:"alias"`
	// Payload is the encoded message. What a neuron sends is at most Limits.PayloadBytes.
	Payload json.RawMessage `json:"payload,omitempty"`
	// Content refers to a payload that was too large and lies in the content table; Payload is then empty in rows and
	// filled again before a handler sees it.
	Content ident.ID `json:"content,omitzero"`
	// Caller is the sending neuron, zero for one that enters from outside.
	Caller ID `json:"caller,omitzero"`
	// Target is zero in the entry of an emission only.
	Target ID `json:"target"`
	// Via is the connection that carries the delivery to the target, zero for one that comes straight.
	Via ident.ID `json:"via,omitzero"`
	// Correlation is the ID of the first delivery of the causal tree, Causation that of the delivery whose turn sent this.
	Correlation ident.ID `json:"correlation,omitzero"`
	Causation   ident.ID `json:"causation,omitzero"`
	// Seq is the sender's outgoing sequence, 0 from outside.
	Seq uint64 `json:"seq,omitempty"`
	// Depth counts hops between neurons (N-19).
	Depth int       `json:"depth,omitempty"`
	At    time.Time `json:"at"`
	Lane  Lane      `json:"lane,omitempty"`
	// Key is the idempotency key that domain code may use past the dedupe window; empty means the ID's text.
	Key string `json:"key,omitempty"`
	// Protected says that the payload is evidence for the neurons that it goes to: journals and dead letters that people read
	// show all but it (N-43).
	Protected bool `json:"protected,omitempty"`
	// Request is set on a delivery that carries out a call.
	Request *Request `json:"request,omitempty"`
}

// Owner is the tenant-side identity in whose name the delivery travels.
func (d *Delivery) Owner() string { return d.Target.Owner }

// IdempotencyKey returns Key, or the ID's text where none was given.
func (d *Delivery) IdempotencyKey() string {
	if d.Key != "" {
		return d.Key
	}
	return d.ID.String()
}

// New returns a delivery from outside: depth 0, its own correlation.
func (t Type[T]) New(target ID, msg T, now time.Time) (Delivery, error) {
	b, err := t.Encode(msg)
	if err != nil {
		return Delivery{}, err
	}
	id := ident.New(now)
	return Delivery{ID: id, Alias: t.alias, Payload: b, Target: target, Correlation: id, At: now}, nil
}
