package call

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"soma/ident"
	"soma/internal/neuron"
)

// Desk is what runs turns, as far as calls need it outside of a turn. The engine fills it; its methods are safe for concurrent
// use.
type Desk interface {
	neuron.Reader
	Now() time.Time
	Limits() neuron.Limits
	PlaceOf(neuron.ID) neuron.Place
	// Holding returns the places whose neurons run here.
	Holding() neuron.PlaceSet
	// TriedAgain reports whether the handler of a delivery will run, or run again, without anybody's help, on whatever node.
	// The error is the store's.
	TriedAgain(ctx context.Context, delivery ident.ID) (bool, error)
	Accept(ctx context.Context, d neuron.Delivery, ops ...neuron.Op) error
	// Record commits a record without a turn.
	Record(*neuron.Record) error
	// Await registers who waits for a request without a handler.
	Await(request ident.ID) (neuron.Hold, error)
}

// From returns the stand-in for a caller who is no neuron, for one call that waits until ctx ends at the latest.
func From(ctx context.Context, d Desk) Side {
	id := ident.New(d.Now())
	return &outside{Desk: d, ctx: ctx, d: neuron.Delivery{ID: id, Correlation: id}}
}

// outside has no journal: facts about its call are not kept.
type outside struct {
	Desk
	ctx     context.Context
	d       neuron.Delivery
	place   neuron.Place // of the target
	ordinal int
}

func (o *outside) Context() context.Context   { return o.ctx }
func (o *outside) Self() neuron.ID            { return neuron.ID{} }
func (o *outside) Delivery() *neuron.Delivery { return &o.d }
func (o *outside) Clock() time.Time           { return o.Now() }

func (o *outside) Ordinal() int {
	o.ordinal++
	return o.ordinal
}

func (o *outside) Query(sql string, args []any, row func(scan func(dest ...any) error) error) error {
	return o.Desk.Query(o.ctx, sql, args, row)
}

func (o *outside) Hold(request ident.ID, _ neuron.ID) (neuron.Hold, error) { return o.Await(request) }

func (o *outside) Commit(s neuron.Step) error {
	rec := &neuron.Record{Ops: s.Ops}
	for _, d := range s.Sends {
		d.Correlation, d.At = o.d.Correlation, o.Now()
		o.place = o.PlaceOf(d.Target)
		rec.Neuron, rec.Outbox = d.Target, append(rec.Outbox, neuron.OutboxRow{Delivery: d, Place: o.place, Due: d.At, Attempts: 1})
	}
	rec.Place = o.place
	return o.Record(rec)
}

// Anyway commits at once. What cannot be committed is found by those who look after calls.
func (o *outside) Anyway(s neuron.Step) { _ = o.Record(&neuron.Record{Place: o.place, Ops: s.Ops}) }

// lookEvery is how often calls without an end are looked after while there are any.
const lookEvery = 15 * time.Second

// page is how many rows are read at once.
const page = 256

// Tender ends calls that nobody ends: whose caller's handler ran again and did not ask again, was given up, or was never
// repeated after a crash. It looks from time to time, and only while there are calls.
type Tender struct {
	desk   Desk
	failed func(error)
	begun  chan struct{} // capacity 1
	looks  atomic.Bool   // it will look
}

// NewTender returns a tender that tells failed why it could not look.
func NewTender(d Desk, failed func(error)) *Tender {
	return &Tender{desk: d, failed: failed, begun: make(chan struct{}, 1)}
}

// Begun says that there may be calls to look after.
func (t *Tender) Begun() {
	if t.looks.Swap(true) {
		return
	}
	select {
	case t.begun <- struct{}{}:
	default:
	}
}

// Run looks after calls until ctx ends, at first those of earlier lives.
func (t *Tender) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.begun:
			timer.Reset(lookEvery)
			continue
		case <-timer.C:
		}
		t.looks.Store(false)
		left, err := t.look(ctx)
		if err != nil && !errors.Is(err, neuron.ErrStopped) && ctx.Err() == nil {
			t.failed(err)
		}
		if left || err != nil {
			t.looks.Store(true)
			timer.Reset(lookEvery)
		}
	}
}

// look ends the calls whose time is over and reports whether there are others.
func (t *Tender) look(ctx context.Context) (left bool, err error) {
	held, now := t.desk.Holding(), t.desk.Now()
	var after ident.ID
	for {
		rows, err := Pending(ctx, t.desk, after, page)
		if err != nil {
			return true, err
		}
		for i := range rows {
			r := &rows[i]
			after = r.ID
			if !held.Has(r.Place) {
				continue
			}
			left = true
			if !r.Deadline.Before(now) {
				continue
			}
			again, err := t.desk.TriedAgain(ctx, r.endedBy())
			if err == nil && !again {
				err = t.lose(ctx, r)
			}
			if err != nil {
				return true, err
			}
		}
		if len(rows) < page {
			return left, nil
		}
	}
}

// endedBy is the delivery whose handler is to end the call.
func (r *Row) endedBy() ident.ID {
	if r.State == Left {
		return r.Ask
	}
	return r.Cause
}

// lose ends one call: by a turn of its caller, which records it. A caller from outside has no record, and one that has left
// its stream has recorded that.
func (t *Tender) lose(ctx context.Context, r *Row) error {
	if r.Caller.IsZero() || r.State == Left {
		return t.desk.Record(&neuron.Record{Place: r.Place, Ops: r.Forget()})
	}
	return t.desk.Accept(ctx, r.lost(t.desk.Now()))
}
