package process

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"soma/ident"
	"soma/internal/agent/schedule"
	"soma/internal/lifecycle"
	"soma/internal/neuron"
	"soma/internal/pykernel"
)

// Bounds of dispatching.
const (
	dispatchDeadline = 45 * time.Second
	dispatchBackoff  = 200 * time.Millisecond
)

// slots drives the scheduler: it learns from committed updates who is ready and who gave its slot back, and delivers
// agent.dispatch.v1 to whoever gets one. No timer runs while nobody waits.
type slots struct {
	host  *Host
	kick  chan struct{} // capacity 1: the queue changed
	tasks lifecycle.Tasks

	mu     sync.Mutex
	queue  *schedule.RoundRobin
	known  map[ident.PID]waiter         // all that are queued or hold a slot
	causes map[ident.PID]pykernel.Cause // of those that wait, where this daemon has seen the turn
}

// waiter is a process that is queued, or holds a slot.
type waiter struct {
	place   neuron.Place
	running bool
}

func newSlots(h *Host) *slots {
	return &slots{
		host: h, kick: make(chan struct{}, 1), queue: schedule.NewRoundRobin(h.o.MaxConcurrent), known: map[ident.PID]waiter{},
		causes: map[ident.PID]pykernel.Cause{},
	}
}

// start begins to give out slots.
func (s *slots) start(ctx context.Context) error {
	return s.tasks.Go(context.WithoutCancel(ctx), "scheduler", s.run)
}

func (s *slots) stop(ctx context.Context) error { return s.tasks.Stop(ctx) }

// update takes a committed change of a process.
func (s *slots) update(u *Update) {
	if !u.WantSlot && !u.DropSlot {
		return
	}
	var place neuron.Place
	if s.host.o.Shared {
		place = s.host.places.of(processID(s.host.o.Owner, u.PID))
	}
	s.mu.Lock()
	if u.DropSlot {
		s.done(u.PID)
	}
	if u.WantSlot {
		s.ready(u.PID, place)
		s.causes[u.PID] = u.cause
	}
	s.mu.Unlock()
	s.wake()
}

// ready queues a process; one that holds a slot is queued again once it gives that back.
func (s *slots) ready(pid ident.PID, place neuron.Place) {
	s.queue.Ready(pid)
	if at, ok := s.known[pid]; !ok {
		s.known[pid] = waiter{place: place}
	} else if at.running {
		s.known[pid] = waiter{place: place, running: true}
	}
}

// done takes a process's slot or its place in the queue away.
func (s *slots) done(pid ident.PID) {
	s.queue.Done(pid)
	delete(s.known, pid)
}

// wake lets run look again.
func (s *slots) wake() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// run gives out the slots that are free.
func (s *slots) run(ctx context.Context) error {
	for {
		s.mu.Lock()
		d := s.queue.Next()
		cause := s.causes[d.PID]
		if d.Kind == schedule.Run {
			delete(s.causes, d.PID)
			at := s.known[d.PID]
			at.running = true
			s.known[d.PID] = at
		}
		s.mu.Unlock()
		if d.Kind == schedule.Run {
			err := s.tasks.Go(ctx, "dispatch", func(ctx context.Context) error { s.dispatch(ctx, d.PID, cause); return nil })
			if err != nil {
				return nil // stopping
			}
			continue
		}
		select {
		case <-s.kick:
		case <-ctx.Done():
			return nil
		}
	}
}

// dispatch delivers until the neuron has taken it: a dispatch that comes too late gives its slot back by its own turn.
func (s *slots) dispatch(ctx context.Context, pid ident.PID, cause pykernel.Cause) {
	h := s.host
	d, err := dispatchType.New(processID(h.o.Owner, pid), dispatch{}, h.o.Now())
	if cause == (pykernel.Cause{}) {
		cause = s.lastTurn(ctx, d.Target)
	}
	if !cause.Correlation.IsZero() {
		d.Correlation, d.Causation = cause.Correlation, cause.Causation
	}
	for attempt := 0; err == nil; attempt++ {
		attemptCtx, cancel := context.WithTimeout(ctx, dispatchDeadline)
		err = h.neurons.Deliver(attemptCtx, d)
		cancel()
		var refusal *neuron.Refusal
		switch {
		case err == nil:
			return
		case ctx.Err() != nil || errors.Is(err, neuron.ErrStopped):
			return
		case moved(err): // its place was given up just now: the next holder finds it Ready
			s.update(&Update{PID: pid, DropSlot: true})
			return
		case errors.As(err, &refusal):
		default:
			h.o.Log.Warn("cannot dispatch, trying again", "pid", pid, "error", err)
			timer := time.NewTimer(min(dispatchBackoff<<min(attempt, 8), time.Minute))
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return
			}
			err = nil
		}
	}
	h.o.Log.Error("cannot dispatch", "pid", pid, "error", err)
	s.update(&Update{PID: pid, DropSlot: true})
}

// lastTurn returns the cause of a process that an earlier daemon has made Ready: its newest turn. It is evidence only, so that
// a read that fails is no reason not to go on.
func (s *slots) lastTurn(ctx context.Context, id neuron.ID) (c pykernel.Cause) {
	err := s.host.o.Reader.Query(ctx, `select t.incoming from turn t join neuron n on n.key = t.neuron where n.id = ? and t.incoming is not null order by t.seq desc limit 1`,
		[]any{id.String()}, func(scan func(...any) error) error {
			var b []byte
			if err := scan(&b); err != nil {
				return err
			}
			var e neuron.Entry
			err := json.Unmarshal(b, &e)
			c = pykernel.Cause{Correlation: e.Correlation, Causation: e.ID}
			return err
		})
	if err != nil {
		s.host.o.Log.Warn("cannot read what a process waits for a slot after", "neuron", id, "error", err)
	}
	return c
}
