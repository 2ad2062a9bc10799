package neuron

import (
	"context"
	"errors"
	"time"

	"soma/ident"
)

// Step is what a turn writes apart from its own record: facts for the outgoing feed, deliveries, operations. The turn fills
// Caller, Seq, Depth and At of facts, Caller and At of deliveries, and Correlation and Causation where they are zero.
type Step struct {
	Facts []Delivery
	Sends []Delivery
	Ops   []Op
}

// Steps is what runs a turn, as far as a handler that must commit or wait in its middle needs it. The engine fills it.
type Steps interface {
	// Step commits the entries of the outgoing feed, the rows and the operations, all or nothing, while the turn goes on.
	// Errors: that of a guarded op, ErrStopped, the store's, or the context's, after which the step may still be committed.
	Step(ctx context.Context, out []Entry, outbox []OutboxRow, ops []Op) error
	// Hold gives the handler's worker up to other neurons until Release, while the handler waits for the answer of another
	// neuron to a request. Errors: ErrBusy when too many handlers wait, ErrWouldDeadlock when on waits, directly or through
	// others, for this neuron; ErrStopped.
	Hold(ctx context.Context, request ident.ID, on ID) (Hold, error)
}

// Hold is one wait of a handler. It belongs to the handler's goroutine.
type Hold interface {
	// Wait returns nil when the request was answered, or may have been, and after d at the latest. Errors: ErrStopped, the
	// engine's failure, the context's.
	Wait(ctx context.Context, d time.Duration) error
	// Alone reports whether all neurons run on this node, so that no wait is hidden from Hold.
	Alone() bool
	// Release ends the wait: the handler runs on.
	Release()
}

// ErrWouldDeadlock: a handler asked to wait for a neuron that waits, directly or through others, for this one.
var ErrWouldDeadlock = errors.New("would deadlock")

// errNoSteps is for a turn that nothing runs.
var errNoSteps = errors.New("this turn can commit no step")

// Commit commits a step now, ahead of the turn: it stays committed whatever becomes of the turn. Errors are those of
// Steps.Step.
func (t *Turn) Commit(s Step) error {
	if t.base.Steps == nil {
		return errNoSteps
	}
	out, rows := t.fill(s, t.base.OutSeq)
	if err := t.base.Steps.Step(t.ctx, out, rows, s.Ops); err != nil {
		return err
	}
	// What is staged comes after it.
	n := uint64(len(out))
	t.base.OutSeq += n
	for i := range t.out {
		t.out[i].Seq += n
	}
	for i := range t.record.Outbox {
		if d := &t.record.Outbox[i].Delivery; d.Seq != 0 {
			d.Seq += n
		}
	}
	return nil
}

// Anyway stages a step that is committed with the turn, and also where its delivery is settled by a refusal. It goes with
// the turn that fails otherwise.
func (t *Turn) Anyway(s Step) {
	t.anyway.Facts = append(t.anyway.Facts, s.Facts...)
	t.anyway.Sends = append(t.anyway.Sends, s.Sends...)
	t.anyway.Ops = append(t.anyway.Ops, s.Ops...)
}

// AtEnd adds what is called when the handler has returned without an ordinary error, before its turn is committed or
// settled, last added first. It may stage what Anyway stages.
func (t *Turn) AtEnd(fn func()) { t.atEnd = append(t.atEnd, fn) }

// Hold is Steps.Hold.
func (t *Turn) Hold(request ident.ID, on ID) (Hold, error) {
	if t.base.Steps == nil {
		return nil, errNoSteps
	}
	return t.base.Steps.Hold(t.ctx, request, on)
}

// Ordinal counts 1, 2, 3 … within the attempt, for ids that must come out equal when the handler runs again.
func (t *Turn) Ordinal() int {
	t.ordinal++
	return t.ordinal
}

// Clock is the time of the turn moved on by what has passed since it began: for what waits within a turn.
func (t *Turn) Clock() time.Time { return t.base.Now.Add(time.Since(t.began)) }

// Limits are those of the engine.
func (t *Turn) Limits() Limits { return t.base.Limits }

// PlaceOf returns the place of a neuron.
func (t *Turn) PlaceOf(id ID) Place { return t.base.PlaceOf(id) }

// Kept hands out what stays of a settled turn, as Result does for one that is committed.
func (t *Turn) Kept() Result {
	out, rows := t.fill(t.anyway, t.base.OutSeq)
	return Result{Record: Record{Outbox: rows, Ops: t.anyway.Ops}, Out: out}
}

// End calls what AtEnd added. Whoever runs the handler calls it, before Result or Kept.
func (t *Turn) End() {
	for len(t.atEnd) > 0 {
		last := len(t.atEnd) - 1
		fn := t.atEnd[last]
		t.atEnd = t.atEnd[:last]
		fn()
	}
}

// fill completes a step. Facts get the sequences after seq; deliveries have none, so that each is a lane of its own.
func (t *Turn) fill(s Step, seq uint64) (out []Entry, rows []OutboxRow) {
	in := &t.base.Delivery
	now := t.Clock()
	for _, d := range s.Facts {
		seq++
		d.Seq, d.Depth = seq, in.Depth
		out = append(out, Entry{Delivery: caused(d, in, now)})
	}
	for _, d := range s.Sends {
		rows = append(rows, OutboxRow{Delivery: caused(d, in, now), Place: t.base.PlaceOf(d.Target), Due: now, Attempts: 1})
	}
	return out, rows
}

// caused completes what the turn of in sends.
func caused(d Delivery, in *Delivery, now time.Time) Delivery {
	d.Caller, d.At = in.Target, now
	if d.Correlation.IsZero() {
		d.Correlation = in.Correlation
	}
	if d.Causation.IsZero() {
		d.Causation = in.ID
	}
	return d
}
