package evidence

import (
	"context"
	"errors"
	"time"
	"unicode/utf8"

	"soma/ident"
	"soma/internal/feed"
	"soma/internal/neuron"
	"soma/wire"
)

// Engine is what is asked of the neurons' engine.
type Engine interface {
	Read(ctx context.Context, id neuron.ID, f neuron.Feed, after uint64, limit int) (neuron.Page, error)
	Watch(id neuron.ID, f neuron.Feed, after feed.Cursor) *feed.Watcher[neuron.Entry]
	Receivers(ctx context.Context, d *neuron.Delivery) ([]neuron.Receiver, error)
	DeadLetters(ctx context.Context, after ident.ID, limit int) ([]neuron.DeadLetter, error)
	Redrive(ctx context.Context, id ident.ID) (ident.ID, error)
	Discard(ctx context.Context, id ident.ID) error
}

// Domain tells what the rooms above the neurons know.
type Domain interface {
	// Find says where the thing that a person names by text is to be looked for; ok is false where there is no such thing.
	Find(ctx context.Context, text string) (found Found, ok bool, err error)
	// Facts returns what the turn of a settled delivery has begun, and what has ended by the delivery.
	Facts(ctx context.Context, e *neuron.Entry) ([]Fact, error)
}

// Found is a thing that is no delivery itself.
type Found struct {
	Is string // what it is, in one word
	// Delivery, where it is known, is the one to start from.
	Delivery ident.ID
	// Neurons are those in whose incoming feeds the delivery is to be looked for, in order; Pick chooses among the entries
	// that are kept, oldest first, and returns -1 for none.
	Neurons []neuron.ID
	Pick    func([]neuron.Entry) int
}

// Fact is a node that the domain adds to the tree.
type Fact struct {
	wire.TraceNode
	// Above puts the node between the delivery and what caused that: it is what the delivery brings the outcome of.
	Above bool
	// Outcome is the delivery that brings the node's outcome: it becomes the node's child.
	Outcome ident.ID
	// JoinedAt, where it is set, is when this was taken up by whatever turn ran then in the same neuron.
	JoinedAt time.Time
}

// Options are what the room is made of; all fields are required.
type Options struct {
	Engine     Engine
	Reader     neuron.Reader
	Domain     Domain
	Generation string // of the database
}

// Evidence answers. It is safe for concurrent use.
type Evidence struct{ o Options }

// New returns the room.
func New(o Options) *Evidence { return &Evidence{o} }

// problem turns an error of the engine about a dead letter into one of the wire.
func problem(id ident.ID, err error) error {
	switch {
	case errors.Is(err, neuron.ErrStopped):
		return wire.Errorf(wire.Stopping, "the daemon is stopping").Do("try again when it is back")
	case errors.Is(err, neuron.ErrNoDeadLetter):
		return wire.Errorf(wire.NotFound, "cannot find dead letter %s: it was re-driven or discarded, or never was", id).
			Do("see soma deadletters")
	}
	return err
}

func text(id ident.ID) string {
	if id.IsZero() {
		return ""
	}
	return id.String()
}

// clip cuts a text to at most n bytes, whole characters, and marks that it did.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
