package engine

import (
	"context"
	"fmt"
	"runtime/debug"

	"soma/ident"
	"soma/internal/crash"
	"soma/internal/feed"
	"soma/internal/neuron"
)

// apply lets a committed group take effect, in the order of the package's doc. It runs on the committer's goroutine, so
// everything here happens in commit order.
func (e *Engine) apply(ctx context.Context, group []*staged, recs []*neuron.Record) {
	e.mu.Lock()
	e.groups++
	for _, s := range group {
		switch {
		case s.a != nil:
			e.project(s)
		case s.step != nil:
			e.projectStep(s)
		}
	}
	e.mu.Unlock()
	e.tell(recs)
	for _, s := range group {
		switch {
		case s.a != nil:
			e.publish(s)
		case s.step != nil:
			e.publishOut(s.step.id, s)
		}
	}
	e.mu.Lock()
	for _, s := range group {
		e.handOver(s)
	}
	away := e.away
	e.away = nil
	e.mu.Unlock()
	if len(away) > 0 && e.elsewhere != nil {
		e.elsewhere(away)
	}
	for _, s := range group {
		for _, id := range s.rec.Cancelled {
			e.Cancel(id)
		}
		for _, x := range s.started {
			e.perform(ctx, x, false)
		}
	}
	for _, s := range group {
		switch {
		case s.end != nil:
			s.end(nil)
		case s.refusal != nil && !s.j.accept:
			e.answer(s.j, s.refusal)
		default:
			e.answer(s.j, nil)
		}
	}
	e.settledAttempts(group)
}

// tell calls the commit hook. What a hook that panics has not projected is not in memory, so the program must end; what is
// committed stays committed, and its callers are told so.
func (e *Engine) tell(recs []*neuron.Record) {
	if e.committed == nil {
		return
	}
	defer func() {
		if v := recover(); v != nil {
			e.log.Error("the commit hook panicked", "panic", v, "stack", string(debug.Stack()))
			e.halt(fmt.Errorf("the commit hook panicked: %v", v))
		}
	}()
	e.committed(recs)
}

// project moves the activation on by its committed record.
func (e *Engine) project(s *staged) {
	a := s.a
	a.unsaved = false
	a.inSeq = s.rec.Turn.Seq
	a.in.add(e.intern(s.in.Alias))
	for i := range s.out {
		a.out.add(e.intern(s.out[i].Alias))
	}
	a.outSeq += uint64(len(s.out))
	if s.wrote {
		a.alias, a.body = s.alias, s.body
	}
	a.seen.Add(s.j.d.ID)
	if later(s.j.d.ID, a.horizon) {
		a.horizon = s.j.d.ID
	}
	if later(s.j.d.ID, e.newest) {
		e.newest = s.j.d.ID
	}
	if _, ok := e.suspects[s.j.d.ID]; ok {
		delete(e.suspects, s.j.d.ID)
		e.inflight.Clear(s.j.d.ID)
	}
	e.turns++
}

// publish hands the entries of a turn to those who watch.
func (e *Engine) publish(s *staged) {
	if key := (journal{s.a.id, neuron.In}); e.journals.Watched(key) {
		e.journals.Publish(key, feed.Item[neuron.Entry]{Seq: s.rec.Turn.Seq, Value: s.in})
	}
	e.publishOut(s.a.id, s)
}

// handOver moves committed rows into their lanes, ends what the record ended, and lets the neuron go on.
func (e *Engine) handOver(s *staged) {
	rec := s.rec
	for _, id := range rec.Delivered {
		e.cancelRow(id)
	}
	for _, id := range rec.Ended {
		delete(e.execs, id)
	}
	if len(rec.Outbox) > 0 {
		crash.Point(crash.DrainCommitted)
	}
	if s.j != nil && s.j.d.Request != nil {
		crash.Point(crash.CallAnswered)
	}
	for i := range rec.Outbox {
		switch row := &rec.Outbox[i]; {
		case e.held.Has(row.Place):
			e.admitRow(row)
		case e.loading.Has(row.Place):
			e.late = append(e.late, row.ID)
		default:
			e.away = append(e.away, neuron.Hint{ID: row.ID, Place: row.Place})
		}
	}
	if s.a == nil {
		return
	}
	e.wakeCaller(&s.j.d)
	if s.j.item != nil {
		e.delivered(s.j.item)
	}
	e.release(s.a)
}

// isOutcome reports whether the delivery has the form of an execution's outcome.
func isOutcome(d *neuron.Delivery) bool {
	return d.Caller == d.Target && d.Seq == 0 && d.ID.Attempt() != 0
}

// endExecution adds the end of the execution whose outcome the delivery brings, unless a newer attempt has taken its place.
func (e *Engine) endExecution(s *staged) {
	d := &s.j.d
	for _, x := range s.rec.Started {
		s.rec.Ended = without(s.rec.Ended, x.ID)
	}
	if !isOutcome(d) {
		return
	}
	id := d.ID.WithAttempt(0)
	for _, x := range s.rec.Started {
		if x.ID == id {
			return
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if x, ok := e.execs[id]; ok && x.attempt == int(d.ID.Attempt()) {
		s.rec.Ended = append(without(s.rec.Ended, id), id)
	}
}

func without(ids []ident.ID, id ident.ID) []ident.ID {
	kept := ids[:0]
	for _, other := range ids {
		if other != id {
			kept = append(kept, other)
		}
	}
	return kept
}
