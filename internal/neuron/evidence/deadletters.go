package evidence

import (
	"context"

	"soma/ident"
	"soma/internal/neuron"
	"soma/wire"
)

// DeadLetters returns up to limit dead letters in order of id after the given one, "" for the beginning. Errors: *wire.Error
// with bad_request, or the store's.
func (e *Evidence) DeadLetters(ctx context.Context, after string, limit int) ([]wire.DeadLetter, error) {
	var from ident.ID
	if err := from.UnmarshalText([]byte(after)); err != nil {
		return nil, wire.Errorf(wire.BadRequest, "after is no id of a dead letter")
	}
	letters, err := e.o.Engine.DeadLetters(ctx, from, limit)
	if err != nil {
		return nil, err
	}
	list := make([]wire.DeadLetter, len(letters))
	for i := range letters {
		list[i] = letterOf(&letters[i])
	}
	return list, nil
}

// Redrive sends the delivery of a dead letter again, and says under which id. Errors: *wire.Error with not_found or stopping,
// or the store's.
func (e *Evidence) Redrive(ctx context.Context, id string) (wire.Redriven, error) {
	key, err := letterID(id)
	if err != nil {
		return wire.Redriven{}, err
	}
	as, err := e.o.Engine.Redrive(ctx, key)
	if err != nil {
		return wire.Redriven{}, problem(key, err)
	}
	return wire.Redriven{ID: id, As: as.String()}, nil
}

// Discard deletes a dead letter. Errors as for Redrive.
func (e *Evidence) Discard(ctx context.Context, id string) (wire.Discarded, error) {
	key, err := letterID(id)
	if err != nil {
		return wire.Discarded{}, err
	}
	return wire.Discarded{ID: id}, problem(key, e.o.Engine.Discard(ctx, key))
}

func letterID(s string) (ident.ID, error) {
	id, err := ident.Parse(s)
	if err != nil {
		return id, wire.Errorf(wire.NotFound, "cannot find a dead letter %.64q", s).Do("see soma deadletters")
	}
	return id, nil
}

func letterOf(d *neuron.DeadLetter) wire.DeadLetter {
	w := wire.DeadLetter{
		ID: d.ID.String(), Alias: d.Alias, Caller: d.Caller.String(), Target: d.Target.String(), Correlation: text(d.Correlation),
		Causation: text(d.Causation), Code: string(d.Code), Error: d.Error, Attempts: d.Attempts, SentAt: d.At.UTC(),
		EndedAt: d.EndedAt.UTC(), Payload: d.Payload,
	}
	if d.Protected {
		w.Payload = nil
	}
	return w
}
