package engine

import (
	"context"
	"fmt"

	"soma/ident"
	"soma/internal/neuron"
)

// DeadLetters returns up to limit dead letters in order of id after the given one. The error is the store's.
func (e *Engine) DeadLetters(ctx context.Context, after ident.ID, limit int) ([]neuron.DeadLetter, error) {
	return e.store.DeadLetters(ctx, after, limit)
}

// Redrive sends the delivery of a dead letter again, under a new id because the old one is settled, with its idempotency
// key kept, and returns the new id. Any node may do it that holds a place at all. Of two calls at once, here or at two nodes,
// the second finds nothing any more. Errors: neuron.ErrNoDeadLetter, neuron.ErrNotOwner (this node holds no place), neuron.ErrStopped,
// the store's, or the context's, after which it may still be sent.
func (e *Engine) Redrive(ctx context.Context, id ident.ID) (ident.ID, error) {
	if err := e.reserve(ctx, id); err != nil {
		return ident.ID{}, err
	}
	letter, err := e.letter(ctx, id)
	if err != nil {
		e.free(id)
		return ident.ID{}, fmt.Errorf("cannot re-drive %s: %w", id, err)
	}
	d := letter.Delivery
	now := e.now()
	d.Key = d.IdempotencyKey()
	d.ID, d.Causation, d.Seq, d.At = ident.New(now), id, 0, now
	row := neuron.OutboxRow{Delivery: d, Place: e.placeOf(d.Target), Due: now, Attempts: 1}
	place, err := e.anyPlace(row.Place)
	if err != nil {
		e.free(id)
		return ident.ID{}, fmt.Errorf("cannot re-drive %s: %w", id, err)
	}
	done := make(chan error, 1)
	e.submit(&staged{
		rec: &neuron.Record{Place: place, Neuron: d.Target, Outbox: []neuron.OutboxRow{row}, Undead: []ident.ID{id}},
		end: func(err error) { e.free(id); done <- err },
	})
	return d.ID, await(ctx, done)
}

// Discard deletes a dead letter. Errors: those of Redrive.
func (e *Engine) Discard(ctx context.Context, id ident.ID) error {
	letter, err := e.letter(ctx, id)
	if err != nil {
		return fmt.Errorf("cannot discard %s: %w", id, err)
	}
	place, err := e.anyPlace(e.placeOf(letter.Target))
	if err != nil {
		return fmt.Errorf("cannot discard %s: %w", id, err)
	}
	return e.write(ctx, &neuron.Record{Place: place, Neuron: letter.Target, Undead: []ident.ID{id}})
}

func (e *Engine) letter(ctx context.Context, id ident.ID) (neuron.DeadLetter, error) {
	letters, err := e.store.DeadLetters(ctx, before(id), 1)
	if err != nil {
		return neuron.DeadLetter{}, err
	}
	if id.IsZero() || len(letters) == 0 || letters[0].ID != id {
		return neuron.DeadLetter{}, neuron.ErrNoDeadLetter
	}
	return letters[0], nil
}

// write commits a record without a turn.
func (e *Engine) write(ctx context.Context, rec *neuron.Record) error {
	if err := e.open(); err != nil {
		return err
	}
	done := make(chan error, 1)
	e.submit(&staged{rec: rec, end: func(err error) { done <- err }})
	return await(ctx, done)
}
