package neuron

import (
	"encoding/json"
	"fmt"
)

// Type binds a Go struct to a permanent alias (N-02). Tokens are package variables of the room that owns the message;
// a Kind lists those it handles, Declare those that are only sent.
type Type[T any] struct{ alias string }

// NewType returns the token of alias, such as "mail.sent.v1". The alias is permanent: rows hold it.
func NewType[T any](alias string) Type[T] { return Type[T]{alias} }

// Alias returns the permanent name.
func (t Type[T]) Alias() string { return t.alias }

// Encode returns msg as JSON.
func (t Type[T]) Encode(msg T) (json.RawMessage, error) {
	b, err := json.Marshal(msg)
	if err != nil {
		return nil, fmt.Errorf("cannot encode %s: %w", t.alias, err)
	}
	return b, nil
}

// Decode reads what Encode wrote.
func (t Type[T]) Decode(b json.RawMessage) (T, error) {
	var v T
	if err := json.Unmarshal(b, &v); err != nil {
		return v, fmt.Errorf("cannot decode %s: %w", t.alias, err)
	}
	return v, nil
}

// read takes what the turn's delivery says, which need not be decoded where it is at hand.
func read[T any](t *Turn, msg *T) error {
	if m, ok := t.base.Message.(T); ok {
		*msg = m
		return nil
	}
	return json.Unmarshal(t.base.Delivery.Payload, msg)
}
