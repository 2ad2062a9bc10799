package engine

import (
	"errors"
	"time"

	"soma/internal/neuron"
	"soma/internal/neuron/observe"
)

// duplicate ends a job whose delivery is settled already: it is acknowledged, nothing runs.
func (e *Engine) duplicate(a *activation, j *job) {
	e.mu.Lock()
	e.release(a)
	if j.item != nil {
		e.delivered(j.item)
	}
	e.mu.Unlock()
	e.attempted(j, observe.AttemptDuplicate, nil, false)
	if err := e.Believes(); err != nil {
		e.answer(j, err) // it is settled, but who says so now must be the owner
		return
	}
	if j.accept && len(j.ops) > 0 {
		e.submit(&staged{rec: &neuron.Record{Place: a.place, Neuron: a.id, Ops: j.ops}, end: func(err error) { e.answer(j, err) }})
		return
	}
	e.answer(j, nil)
}

// answer tells the caller of Deliver or Accept how it went.
func (e *Engine) answer(j *job, err error) {
	if j.accept {
		e.free(j.d.ID)
	}
	if j.done != nil {
		j.done <- err
	}
}

// failAttempt ends a failed attempt; the caller holds the activation's job.
func (e *Engine) failAttempt(a *activation, j *job, err error) {
	if r := j.d.Request; r != nil && !r.Dispose && a.loaded {
		e.failRequest(a, j, err)
		return
	}
	if j.item != nil {
		if code := e.spent(j); code != "" {
			e.settle(a, j, &neuron.Refusal{Code: code, Err: err})
			return
		}
	}
	e.mu.Lock()
	e.release(a)
	e.mu.Unlock()
	if j.item != nil || j.accept {
		e.attempted(j, observe.AttemptRetried, nil, false)
	} else {
		e.attempted(j, observe.AttemptFailed, nil, false)
	}
	switch {
	case j.item != nil:
		e.log.Warn("delivery failed and will be retried", "neuron", j.d.Target, "alias", j.d.Alias, "delivery", j.d.ID, "error", err)
		e.retry(j)
	case j.accept:
		e.log.Warn("delivery failed and will be retried", "neuron", j.d.Target, "alias", j.d.Alias, "delivery", j.d.ID, "error", err)
		e.keep(j, true)
	default:
		e.answer(j, err)
	}
}

// recordFailed ends a record that failed alone.
func (e *Engine) recordFailed(s *staged, err error) {
	var refusal *neuron.Refusal
	switch {
	case s.end != nil:
		s.end(err)
	case errors.Is(err, neuron.ErrDuplicate):
		e.duplicate(s.a, s.j)
	case s.j.carried && errors.As(err, &refusal) && refusal.Code == neuron.MissingConnection:
		e.uncarried(s, refusal)
	case s.refusal == nil:
		e.failAttempt(s.a, s.j, err)
	case s.j.item != nil:
		// Not even the refusal can be written: its row is tried again later, without a count that would end it at once.
		e.log.Error("cannot settle a delivery", "neuron", s.a.id, "delivery", s.j.d.ID, "error", err)
		e.mu.Lock()
		e.release(s.a)
		e.wait(s.j.item, time.Now().Add(e.limits.BackoffMax))
		e.mu.Unlock()
	default:
		e.mu.Lock()
		e.release(s.a)
		e.mu.Unlock()
		e.answer(s.j, err)
	}
}
