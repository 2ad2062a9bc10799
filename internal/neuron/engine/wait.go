package engine

import (
	"context"
	"fmt"
	"time"

	"soma/ident"
	"soma/internal/neuron"
)

// waits are the handlers, and the callers from outside, that wait for answers. It belongs to Engine.mu.
type waits struct {
	by     map[ident.ID]*hold      // by request
	on     map[neuron.ID]neuron.ID // for whom a neuron waits; each waits for one at most
	parked int
}

// worker is one goroutine that runs handlers; its seat is its slot in the file of running deliveries. One whose handler
// waits has no seat: a crash is not charged to who only waits.
type worker struct{ seat int }

// crew are the workers. It belongs to Engine.mu.
type crew struct {
	size   int // how many run or look for work, and how many that ought to be
	want   int
	seated []bool
}

func (c *crew) sit(w *worker) {
	c.size++
	for i, taken := range c.seated {
		if !taken {
			c.seated[i], w.seat = true, i
			return
		}
	}
	c.seated = append(c.seated, true)
	w.seat = len(c.seated) - 1
}

func (c *crew) stand(w *worker) {
	c.size--
	c.seated[w.seat] = false
}

// hire starts a worker if there are too few. The caller holds the lock.
func (e *Engine) hire(ctx context.Context) error {
	if e.crew.size >= e.crew.want || e.phase >= stopping {
		return nil
	}
	w := &worker{}
	e.crew.sit(w)
	err := e.loops.Go(ctx, "worker", func(ctx context.Context) error { return e.work(ctx, w) })
	if err != nil {
		e.crew.stand(w)
	}
	return err
}

// surplus lets a worker go when one has come back from a wait. The caller holds the lock.
func (e *Engine) surplus(w *worker) bool {
	if e.crew.size <= e.crew.want {
		return false
	}
	e.crew.stand(w)
	if e.runq.Len() > 0 {
		e.runnable.Signal() // the signal that woke it may have been for a job
	}
	return true
}

// hold is one wait.
type hold struct {
	e       *Engine
	s       *steps // nil: a caller from outside
	request ident.ID
	woken   chan struct{} // capacity 1
}

// Hold gives the worker of the turn to others.
func (s *steps) Hold(ctx context.Context, request ident.ID, on neuron.ID) (neuron.Hold, error) {
	e := s.e
	e.inflight.Leave(s.w.seat)
	e.mu.Lock()
	defer e.mu.Unlock()
	err := e.openLocked()
	if err == nil && e.waits.parked >= e.limits.Waiting {
		err = fmt.Errorf("%w: %d handlers wait", neuron.ErrBusy, e.limits.Waiting)
	}
	for at, waits := on, true; waits && err == nil; at, waits = e.waits.on[at] {
		if at == s.a.id {
			err = fmt.Errorf("%w: %s waits for %s", neuron.ErrWouldDeadlock, on, s.a.id)
		}
	}
	if err != nil {
		e.inflight.Enter(s.w.seat, s.j.d.ID)
		return nil, err
	}
	h := e.await(request)
	h.s = s
	e.waits.on[s.a.id] = on
	e.waits.parked++
	e.crew.stand(s.w)
	if err := e.hire(context.WithoutCancel(ctx)); err != nil {
		e.log.Error("cannot start a worker in place of one that waits", "error", err)
	}
	return h, nil
}

// await registers who waits. The caller holds the lock.
func (e *Engine) await(request ident.ID) *hold {
	h := &hold{e: e, request: request, woken: make(chan struct{}, 1)}
	e.waits.by[request] = h
	return h
}

// wake tells who waits for a request that it was settled, and reports whether somebody does here. The caller holds the lock.
func (e *Engine) wake(request ident.ID) bool {
	h := e.waits.by[request]
	if h == nil {
		return false
	}
	select {
	case h.woken <- struct{}{}:
	default:
	}
	return true
}

func (h *hold) Wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-h.woken:
		return nil
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-h.e.ending:
		return h.e.why()
	case <-h.e.broken:
		return h.e.why()
	}
}

func (h *hold) Alone() bool { return h.e.Holding() == allPlaces }

func (h *hold) Release() {
	e := h.e
	e.mu.Lock()
	delete(e.waits.by, h.request)
	if h.s != nil {
		delete(e.waits.on, h.s.a.id)
		e.waits.parked--
		e.crew.sit(h.s.w)
		if e.crew.size > e.crew.want {
			e.runnable.Signal()
		}
	}
	e.mu.Unlock()
	if h.s != nil {
		e.inflight.Enter(h.s.w.seat, h.s.j.d.ID)
	}
}
