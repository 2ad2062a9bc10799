package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	"soma/ident"
	"soma/internal/neuron"
)

// Deliver hands a delivery from outside to its target and returns after the commit of its turn. It returns nil for a
// repeat of a settled delivery too; a *neuron.Refusal when the turn settled it; neuron.ErrBusy when the mailbox is full;
// neuron.ErrStopped; the handler's error after one failed attempt, which nobody repeats but the caller, under the same ID;
// and the context's error when that ends first, in which case the delivery may still be handled.
//
// A zero Correlation becomes the ID and a zero At the time of the clock. The payload is copied. One above
// Limits.PayloadBytes is kept as content and travels by reference.
func (e *Engine) Deliver(ctx context.Context, d neuron.Delivery) error {
	d, err := e.admit(d)
	if err != nil {
		return err
	}
	j := &job{d: d, done: make(chan error, 1)}
	if err := e.offer(j); err != nil {
		return err
	}
	return await(ctx, j.done)
}

// Fire is Deliver for a typed message: what a client fires at a named receiver is a Send (N-40).
func Fire[T any](ctx context.Context, e *Engine, to neuron.ID, typ neuron.Type[T], msg T) error {
	d, err := typ.New(to, msg, e.now())
	if err != nil {
		return neuron.Settle(err)
	}
	return e.Deliver(ctx, d)
}

// Accept takes a delivery durably: once it returns nil, ops and the delivery are safe, and the engine does the rest. An idle
// target gets it at once, and ops are committed with its turn; where the target is busy or its attempt fails, ops are
// committed with an outbox row of the delivery, which is retried like any sent one. Ops are committed exactly once per
// call, also when the delivery is a repeat or is refused by its handler (then the result is nil too): where calls are
// repeated, ops must be safe to repeat (insert … on conflict do nothing).
//
// Errors: that of a guarded op, neuron.ErrStopped, the store's, or the context's, after which the acceptance may still
// happen.
func (e *Engine) Accept(ctx context.Context, d neuron.Delivery, ops ...neuron.Op) error {
	d, err := e.admit(d)
	if err != nil {
		return err
	}
	return e.take(ctx, &job{d: d, ops: ops})
}

// take is Accept for a delivery that is complete and whose payload is the engine's own.
func (e *Engine) take(ctx context.Context, j *job) error {
	if err := e.reserve(ctx, j.d.ID); err != nil {
		return err
	}
	j.accept, j.done = true, make(chan error, 1)
	e.accept(j)
	return await(ctx, j.done)
}

// Write commits ops without a turn. Errors: that of a guarded op, neuron.ErrStopped, the store's, or the context's, after
// which the write may still happen.
func (e *Engine) Write(ctx context.Context, place neuron.Place, ops ...neuron.Op) error {
	return e.write(ctx, &neuron.Record{Place: place, Ops: ops})
}

func await(ctx context.Context, done <-chan error) error {
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// admit checks and completes a delivery from outside. The payload becomes the engine's own (N-04); one that is no JSON is
// kept as a JSON string, so that rows can hold it and its handler refuses it.
func (e *Engine) admit(d neuron.Delivery) (neuron.Delivery, error) {
	if err := neuron.CheckID(d.Target); err != nil {
		return d, err
	}
	if !d.Caller.IsZero() {
		if err := neuron.CheckID(d.Caller); err != nil {
			return d, err
		}
	}
	if d.Request != nil {
		return d, neuron.Settle(errors.New("a delivery from outside names a call"))
	}
	if !d.Via.IsZero() {
		return d, neuron.Settle(errors.New("a delivery from outside names a connection"))
	}
	if d.ID.IsZero() {
		return d, neuron.Settle(errors.New("a delivery has no id"))
	}
	if d.Correlation.IsZero() {
		d.Correlation = d.ID
	}
	if d.At.IsZero() {
		d.At = e.now()
	}
	if len(d.Payload) > 0 && !json.Valid(d.Payload) {
		d.Payload, _ = json.Marshal(string(d.Payload))
		return d, nil
	}
	d.Payload = bytes.Clone(d.Payload)
	return d, nil
}

// reserve makes the caller the only one who accepts or re-drives id, until free; it waits for the one before.
func (e *Engine) reserve(ctx context.Context, id ident.ID) error {
	for {
		e.mu.Lock()
		if err := e.openLocked(); err != nil {
			e.mu.Unlock()
			return err
		}
		ahead, taken := e.accepts[id]
		if !taken {
			e.accepts[id] = make(chan struct{})
		}
		e.mu.Unlock()
		if !taken {
			return nil
		}
		select {
		case <-ahead:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// free lets the next one have the id.
func (e *Engine) free(id ident.ID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c, ok := e.accepts[id]; ok {
		delete(e.accepts, id)
		close(c)
	}
}
