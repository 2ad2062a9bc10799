package engine

import (
	"time"

	"soma/internal/neuron"
)

// accept takes a reserved delivery: into the mailbox of an idle target, else durably.
func (e *Engine) accept(j *job) {
	e.mu.Lock()
	err := e.openLocked()
	if err == nil {
		err = e.ownLocked(&j.d)
	}
	if err != nil {
		e.mu.Unlock()
		e.answer(j, err)
		return
	}
	known := e.drain.holds(j.d.ID)
	a := e.warm[j.d.Target]
	if !known && (a == nil || a.state == idle) {
		e.post(e.activate(j.d.Target), j)
		e.mu.Unlock()
		return
	}
	e.mu.Unlock()
	if !known {
		e.keep(j, false)
		return
	}
	if len(j.ops) == 0 {
		e.answer(j, nil)
		return
	}
	rec := &neuron.Record{Place: e.placeOf(j.d.Target), Neuron: j.d.Target, Ops: j.ops}
	e.submit(&staged{rec: rec, end: func(err error) { e.answer(j, err) }})
}

// keep commits the ops of an acceptance with an outbox row of its delivery; failed says that one attempt is behind it.
func (e *Engine) keep(j *job, failed bool) {
	now := e.now()
	row := neuron.OutboxRow{Delivery: j.d, Place: e.placeOf(j.d.Target), Due: now, Attempts: 1}
	rec := &neuron.Record{Place: row.Place, Neuron: j.d.Target, Ops: j.ops}
	if c, ok := e.byReference(&row.Delivery); ok {
		rec.Contents = append(rec.Contents, c)
	}
	if failed {
		tried := min(time.Since(j.began), e.limits.AttemptTime)
		pause := e.backoff(1)
		row.Attempts, row.FirstTry, row.Tried, row.Due = 2, now, tried+pause, now.Add(pause)
	}
	rec.Outbox = []neuron.OutboxRow{row}
	e.submit(&staged{rec: rec, end: func(err error) { e.answer(j, err) }})
}
