package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/call"
)

// work is one worker: it takes runnable activations and runs one job of each, until the engine stops or there are too many.
func (e *Engine) work(ctx context.Context, w *worker) error {
	for {
		e.mu.Lock()
		for e.runq.Len() == 0 && e.phase < stopping && e.failed == nil && e.crew.size <= e.crew.want {
			e.runnable.Wait()
		}
		if e.phase >= stopping || e.failed != nil || e.surplus(w) {
			e.mu.Unlock()
			return nil
		}
		a := e.runq.Pop()
		a.state = a.state.on(take)
		j := a.nextJob()
		e.waiting--
		e.running++
		gone := j.item != nil && j.item.gone
		e.mu.Unlock()
		if gone {
			e.drop(a)
		} else {
			e.turn(ctx, w, a, j)
		}
		e.mu.Lock()
		e.running--
		e.checkQuiet()
		e.mu.Unlock()
	}
}

// drop ends a job that has nothing to do.
func (e *Engine) drop(a *activation) {
	e.mu.Lock()
	e.release(a)
	e.mu.Unlock()
}

// turn runs one delivery as far as the committer.
func (e *Engine) turn(ctx context.Context, w *worker, a *activation, j *job) {
	j.began = time.Now()
	if j.erase != nil {
		e.eraseNow(ctx, a, j)
		return
	}
	if !a.loaded {
		if err := e.load(ctx, a); err != nil {
			e.failAttempt(a, j, err)
			return
		}
	}
	found, err := e.fill(ctx, j)
	if err != nil {
		e.failAttempt(a, j, err)
		return
	}
	if !found {
		e.drop(a)
		return
	}
	settled, err := e.settled(ctx, a, j.d.ID)
	if err != nil {
		e.failAttempt(a, j, fmt.Errorf("cannot look up delivery %s: %w", j.d.ID, err))
		return
	}
	if settled {
		e.duplicate(a, j)
		return
	}
	if j.item != nil && j.item.unsure && j.giveUp == "" {
		e.countFirst(a, j)
		return
	}
	var refusal *neuron.Refusal
	if !j.d.Via.IsZero() && j.giveUp == "" {
		if err := e.carry(ctx, w.seat, j); errors.As(err, &refusal) {
			e.settle(a, j, refusal)
			return
		} else if err != nil {
			e.failAttempt(a, j, err)
			return
		}
	}
	s, err := e.prepare(a, j)
	if err != nil {
		e.failAttempt(a, j, err)
		return
	}
	if j.giveUp != "" {
		e.settle(a, j, &neuron.Refusal{Code: j.giveUp, Err: errors.New("given up")})
		return
	}
	handler := e.handler(&j.d)
	if handler == nil {
		e.settle(a, j, &neuron.Refusal{Code: neuron.NoHandler, Err: fmt.Errorf("%s has no handler for %s", a.id.Kind, j.d.Alias)})
		return
	}
	attempt, cancel := e.attempt(ctx, j)
	t := neuron.NewTurn(attempt, neuron.Base{
		Delivery: j.d, Message: j.msg, Now: e.now(), StateAlias: a.alias, State: a.body, OutSeq: a.outSeq, Limits: e.limits, Reader: e.store,
		PlaceOf: e.placeOf, Steps: &steps{e, w, a, j}, Receivers: e.Receivers,
	})
	e.inflight.Enter(w.seat, j.d.ID)
	err = e.run(handler, t)
	e.inflight.Leave(w.seat)
	cancel()
	if err == nil {
		if err = e.complete(s, t.Result()); j.carried {
			kept := t.Kept()
			s.kept = &kept
		}
	}
	switch {
	case err == nil:
		e.stage(s)
	case errors.As(err, &refusal):
		kept := t.Kept()
		j.kept = &kept
		e.settle(a, j, refusal)
	default:
		e.failAttempt(a, j, err)
	}
}

// maybeSeen reports whether the neuron may have settled the id. One that is newer than all it knows was not, unless its time
// lies ahead: then the clock was set back and older ids are greater, too.
func (e *Engine) maybeSeen(a *activation, id ident.ID) bool {
	return !later(id, a.horizon) || id.Time().After(e.now())
}

// handler returns what handles the delivery, nil if nothing does.
func (e *Engine) handler(d *neuron.Delivery) func(*neuron.Turn) error {
	switch d.Alias {
	case endedAlias:
		return func(*neuron.Turn) error { return nil } // complete writes the fact
	case call.LostAlias:
		return call.Conclude
	}
	if d.Target.Kind == neuron.ClientKind {
		return neuron.Reemit
	}
	if k := e.kinds[d.Target.Kind]; k != nil {
		return k.Handler(d.Alias)
	}
	return nil
}

// run calls a handler, and what is to be called at its end, and turns a panic into an error.
func (e *Engine) run(handler func(*neuron.Turn) error, t *neuron.Turn) (err error) {
	defer func() {
		if v := recover(); v != nil {
			d := t.Delivery()
			e.log.Error("handler panicked", "neuron", d.Target, "alias", d.Alias, "delivery", d.ID, "panic", v, "stack", string(debug.Stack()))
			err = fmt.Errorf("handler of %s panicked: %v", d.Alias, v)
		}
	}()
	err = handler(t)
	if refusal := (*neuron.Refusal)(nil); err == nil || errors.As(err, &refusal) {
		t.End()
	}
	return err
}

// fill reads what of the job is not in memory: its outbox row, its content. found is false when the row has gone.
func (e *Engine) fill(ctx context.Context, j *job) (found bool, err error) {
	if j.item != nil && j.row == nil {
		rows, err := e.store.OutboxRows(ctx, []ident.ID{j.item.id})
		if err != nil {
			return false, fmt.Errorf("cannot read outbox row %s: %w", j.item.id, err)
		}
		if len(rows) == 0 {
			e.mu.Lock()
			e.forget(j.item)
			e.mu.Unlock()
			return false, nil
		}
		j.row, j.d = &rows[0], rows[0].Delivery
	}
	if j.d.Content.IsZero() || j.d.Payload != nil {
		return true, nil
	}
	err = e.store.Query(ctx, neuron.SelectContent, []any{j.d.Content[:]}, func(scan func(...any) error) error {
		var b []byte
		if err := scan(&b); err != nil {
			return err
		}
		j.d.Payload = b
		return nil
	})
	if err == nil && j.d.Payload == nil {
		err = errors.New("it is gone")
	}
	if err != nil {
		return false, fmt.Errorf("cannot read content %s: %w", j.d.Content, err)
	}
	return true, nil
}

// before returns the greatest id that sorts before id.
func before(id ident.ID) ident.ID {
	for i := len(id) - 1; i >= 0; i-- {
		id[i]--
		if id[i] != 255 {
			break
		}
	}
	return id
}
