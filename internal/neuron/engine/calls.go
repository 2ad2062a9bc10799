package engine

import (
	"context"
	"slices"
	"time"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/call"
)

// keepOf adds to the record of a settled delivery what its turn keeps all the same, and tells the caller of a request.
func (e *Engine) keepOf(s *staged, code neuron.Code) {
	if kept := s.j.kept; kept != nil {
		s.out = kept.Out
		s.rec.Outbox = append(s.rec.Outbox, kept.Record.Outbox...)
		s.rec.Ops = slices.Concat(s.rec.Ops, kept.Record.Ops)
	}
	if s.j.d.Request != nil {
		s.rec.Ops = append(slices.Clip(s.rec.Ops), call.Refuse(&s.j.d, code))
	}
}

// failRequest settles a request whose attempt failed; when its time is over that is the reason.
func (e *Engine) failRequest(a *activation, j *job, err error) {
	code := neuron.CallFailed
	if !e.now().Before(j.d.Request.Until) {
		code = call.TooLate
	}
	e.settle(a, j, &neuron.Refusal{Code: code, Err: err})
}

// wakeCaller tells the caller of a request that its delivery is settled, through another node where it waits there.
func (e *Engine) wakeCaller(d *neuron.Delivery) {
	if d.Request == nil || e.wake(d.Request.ID) || d.Caller.IsZero() {
		return
	}
	if p := e.placeOf(d.Caller); !e.held.Has(p) {
		e.away = append(e.away, neuron.Hint{ID: d.Request.ID, Place: p})
	}
}

// attempt bounds an attempt, and that of a request by the time its caller waits.
func (e *Engine) attempt(ctx context.Context, j *job) (context.Context, context.CancelFunc) {
	d := e.limits.AttemptTime
	if r := j.d.Request; r != nil && !r.Dispose {
		d = min(d, r.Until.Sub(e.now()))
	}
	return context.WithTimeout(ctx, d)
}

// Outside returns the stand-in for a caller who is no neuron, for one call (call.Outside) that waits until ctx ends at the
// latest.
func (e *Engine) Outside(ctx context.Context) call.Side { return call.From(ctx, desk{e}) }

// desk is the engine as calls see it.
type desk struct{ *Engine }

func (d desk) Now() time.Time                    { return d.now() }
func (d desk) Limits() neuron.Limits             { return d.limits }
func (d desk) PlaceOf(id neuron.ID) neuron.Place { return d.placeOf(id) }
func (d desk) Query(ctx context.Context, sql string, args []any, row func(scan func(dest ...any) error) error) error {
	return d.store.Query(ctx, sql, args, row)
}

func (d desk) TriedAgain(ctx context.Context, delivery ident.ID) (bool, error) {
	d.mu.Lock()
	_, accepted := d.accepts[delivery]
	known, alone := accepted || d.drain.holds(delivery), d.held == allPlaces
	d.mu.Unlock()
	if known || alone {
		return known, nil
	}
	rows, err := d.store.OutboxRows(ctx, []ident.ID{delivery})
	return len(rows) > 0, err
}

func (d desk) Record(rec *neuron.Record) error {
	if len(rec.Outbox) > 0 {
		d.calls.Begun()
	}
	return d.commitNow(&staged{rec: rec})
}

func (d desk) Await(request ident.ID) (neuron.Hold, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.openLocked(); err != nil {
		return nil, err
	}
	return d.await(request), nil
}
