package engine

import (
	"context"
	"errors"

	"soma/ident"
	"soma/internal/neuron"
)

// eraseRows is how many rows one commit of Erase deletes.
const eraseRows = 256

// Erase deletes what is stored of a neuron for which nothing waits or runs, in one commit of about 256 rows, and reports
// whether more of it is left: then it is called again. A later delivery meets a neuron that never was; what it has sent goes on.
//
// Errors: neuron.ErrBusy where a delivery, an alarm, an execution or a call of the neuron is under way, neuron.ErrNotOwner,
// neuron.ErrStopped, the store's, or the context's, after which it may still happen.
func (e *Engine) Erase(ctx context.Context, id neuron.ID) (more bool, err error) {
	if err := neuron.CheckID(id); err != nil {
		return false, err
	}
	j := &job{d: neuron.Delivery{ID: ident.New(e.now()), Target: id}, erase: new(bool), done: make(chan error, 1)}
	e.mu.Lock()
	if a := e.warm[id]; a != nil && a.state != idle {
		err = neuron.ErrBusy
	}
	if err = errors.Join(e.openLocked(), e.ownLocked(&j.d), err); err == nil {
		e.post(e.activate(id), j)
	}
	e.mu.Unlock()
	if err != nil {
		return false, err
	}
	err = await(ctx, j.done)
	return err == nil && *j.erase, err
}

// eraseNow runs the job of an Erase on a worker; while its record is being committed, deliveries wait in the mailbox.
func (e *Engine) eraseNow(ctx context.Context, a *activation, j *job) {
	ctx, cancel := context.WithTimeout(ctx, e.limits.AttemptTime)
	defer cancel()
	ops, more, err := neuron.Erasure(ctx, e.store, a.id, eraseRows)
	if err != nil || len(ops) == 0 {
		e.drop(a)
		e.answer(j, err)
		return
	}
	*j.erase = more
	e.mu.Lock()
	a.state = a.state.on(stage)
	e.mu.Unlock()
	e.submit(&staged{rec: &neuron.Record{Place: e.placeOf(a.id), Neuron: a.id, Ops: ops}, end: func(err error) {
		if err == nil && !more {
			e.journals.End(func(k journal) bool { return k.id == a.id })
		}
		e.mu.Lock()
		*a = activation{id: a.id, state: a.state, again: a.again, signals: a.signals, mail: a.mail} // what waits for it stays
		e.release(a)
		e.mu.Unlock()
		e.answer(j, err)
	}})
}
