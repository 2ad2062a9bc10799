package engine

import (
	"context"
	"fmt"

	"soma/internal/feed"
	"soma/internal/neuron"
)

// steps is what the turn of one attempt may do in its middle. It belongs to the worker that runs the attempt.
type steps struct {
	e *Engine
	w *worker
	a *activation
	j *job
}

// Step commits a record of its own while the activation stays taken. It does not heed the end of ctx: what the activation
// projects must not move behind the back of its turn.
func (s *steps) Step(_ context.Context, out []neuron.Entry, outbox []neuron.OutboxRow, ops []neuron.Op) error {
	e, a := s.e, s.a
	e.calls.Begun()
	rec := &neuron.Record{Place: a.place, Neuron: a.id, Key: a.key, Outbox: outbox, Ops: ops}
	st := &staged{rec: rec, out: out}
	if len(out) > 0 {
		for i := range out {
			if _, ok := e.types[out[i].Alias]; !ok {
				return neuron.Settle(fmt.Errorf("%s is sent but not listed", out[i].Alias))
			}
		}
		b, err := neuron.EncodeEntries(out)
		if err != nil {
			return fmt.Errorf("cannot encode a step of %s: %w", a.id, err)
		}
		rec.New = a.unsaved
		rec.Turn = &neuron.TurnRow{Seq: a.inSeq + 1, OutFirst: a.outSeq + 1, Outgoing: b}
		st.step = a
	}
	return e.commitNow(st)
}

// commitNow waits for the commit of a record, which ends with the engine at the latest.
func (e *Engine) commitNow(s *staged) error {
	if err := e.open(); err != nil {
		return err
	}
	done := make(chan error, 1)
	s.end = func(err error) { done <- err }
	e.submit(s)
	return <-done
}

// projectStep moves the activation on by a committed step.
func (e *Engine) projectStep(s *staged) {
	a := s.step
	a.unsaved = false
	for i := range s.out {
		a.out.add(e.intern(s.out[i].Alias))
	}
	a.outSeq += uint64(len(s.out))
}

// publishOut hands what a record added to an outgoing feed to those who watch.
func (e *Engine) publishOut(id neuron.ID, s *staged) {
	key := journal{id, neuron.Out}
	if len(s.out) == 0 || !e.journals.Watched(key) {
		return
	}
	items := make([]feed.Item[neuron.Entry], len(s.out))
	for i := range s.out {
		items[i] = feed.Item[neuron.Entry]{Seq: s.rec.Turn.OutFirst + uint64(i), Value: s.out[i]}
	}
	e.journals.Publish(key, items...)
}
