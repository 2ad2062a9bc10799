package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/call"
)

// callsEvery is how often calls without an end are looked after while there are any.
const callsEvery = 15 * time.Second

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

// wakeCaller tells the caller of a request that its delivery is settled, through another node where it waits there.
func (e *Engine) wakeCaller(d *neuron.Delivery) {
	if d.Request == nil || e.wake(d.Request.ID) || d.Caller.IsZero() {
		return
	}
	if !e.held.Has(e.placeOf(d.Caller)) {
		e.away = append(e.away, d.Request.ID)
	}
}

// attempt bounds an attempt, and that of a request by the time its caller waits.
func (e *Engine) attempt(ctx context.Context, j *job) (context.Context, context.CancelFunc) {
	d := e.limits.AttemptTime
	if r := j.d.Request; r != nil {
		d = min(d, r.Until.Sub(e.now()))
	}
	return context.WithTimeout(ctx, d)
}

// tend makes sure that the calls which have just begun are looked after.
func (e *Engine) tend() {
	if e.tending.Swap(true) {
		return
	}
	select {
	case e.tended <- struct{}{}:
	default:
	}
}

// callLoop ends calls that nobody ends: whose caller's handler ran again and did not ask again, was given up, or was never
// repeated after a crash. Its timer runs only while there are calls.
func (e *Engine) callLoop(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.tended:
			timer.Reset(callsEvery)
			continue
		case <-timer.C:
		}
		e.tending.Store(false)
		left, err := e.lookAfterCalls(ctx)
		if err != nil && !e.stops() {
			e.log.Error("cannot look after calls without an end", "error", err)
		}
		if left || err != nil {
			e.tending.Store(true)
			timer.Reset(callsEvery)
		}
	}
}

// lookAfterCalls ends the calls whose time is over, and reports whether there are others.
func (e *Engine) lookAfterCalls(ctx context.Context) (left bool, err error) {
	var after ident.ID
	for {
		rows, err := call.Pending(ctx, e.store, after, readPage)
		if err != nil {
			return true, err
		}
		for i := range rows {
			r := &rows[i]
			after = r.ID
			if !e.Holding().Has(r.Place) {
				continue
			}
			left = true
			if !r.Deadline.Before(e.now()) || e.triedAgain(r.Cause) {
				continue
			}
			if err := e.loseCall(ctx, r); err != nil {
				return true, err
			}
		}
		if len(rows) < readPage {
			return left, nil
		}
	}
}

// triedAgain reports whether the handler that asked will run again.
func (e *Engine) triedAgain(cause ident.ID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.drain.holds(cause)
}

// loseCall ends one call: by a turn of its caller, which records it. A caller from outside has no record, and one that has
// left its stream has recorded that.
func (e *Engine) loseCall(ctx context.Context, r *call.Row) error {
	var err error
	if r.Caller.IsZero() || r.State == call.Left {
		err = e.Write(ctx, r.Place, r.Forget()...)
	} else {
		err = e.Accept(ctx, r.Lost(e.now()))
	}
	if errors.Is(err, neuron.ErrStopped) {
		return nil
	}
	return err
}

// Outside returns the stand-in for a caller who is no neuron, for one call (call.Outside) that waits until ctx ends at the
// latest.
func (e *Engine) Outside(ctx context.Context) call.Side {
	id := ident.New(e.now())
	return &outside{e: e, ctx: ctx, d: neuron.Delivery{ID: id, Correlation: id}}
}

// outside has no journal: facts about its call are not kept.
type outside struct {
	e       *Engine
	ctx     context.Context // of the one call for which it is made
	d       neuron.Delivery
	place   neuron.Place // of the target
	ordinal int
}

func (o *outside) Context() context.Context          { return o.ctx }
func (o *outside) Self() neuron.ID                   { return neuron.ID{} }
func (o *outside) Delivery() *neuron.Delivery        { return &o.d }
func (o *outside) Clock() time.Time                  { return o.e.now() }
func (o *outside) Limits() neuron.Limits             { return o.e.limits }
func (o *outside) PlaceOf(id neuron.ID) neuron.Place { return o.e.placeOf(id) }
func (o *outside) Ordinal() int                      { o.ordinal++; return o.ordinal }
func (o *outside) Query(sql string, args []any, row func(scan func(dest ...any) error) error) error {
	return o.e.store.Query(o.ctx, sql, args, row)
}

func (o *outside) Commit(s neuron.Step) error {
	rec := &neuron.Record{Ops: s.Ops}
	for _, d := range s.Sends {
		d.Correlation, d.At = o.d.Correlation, o.e.now()
		row := neuron.OutboxRow{Delivery: d, Place: o.e.placeOf(d.Target), Due: d.At, Attempts: 1}
		rec.Neuron, rec.Outbox = d.Target, append(rec.Outbox, row)
		o.place = row.Place
	}
	rec.Place = o.place
	o.e.tend()
	return o.e.commitNow(&staged{rec: rec})
}

// Anyway commits at once, whether or not the caller still waits. What cannot be committed is found by those who look after
// calls.
func (o *outside) Anyway(s neuron.Step) {
	rec := &neuron.Record{Place: o.place, Ops: s.Ops}
	if err := o.e.commitNow(&staged{rec: rec}); err != nil {
		o.e.log.Warn("cannot end a call from outside", "error", err)
	}
}

func (o *outside) Hold(request ident.ID, _ neuron.ID) (neuron.Hold, error) {
	e := o.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.openLocked(); err != nil {
		return nil, err
	}
	return e.await(request), nil
}
