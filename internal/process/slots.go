package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"soma/ident"
	"soma/internal/agent/schedule"
	"soma/internal/agent/turn"
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
	causes map[ident.PID]pykernel.Cause // of those that wait, where this daemon has seen the turn
}

func newSlots(h *Host) *slots {
	return &slots{host: h, kick: make(chan struct{}, 1), queue: schedule.NewRoundRobin(h.o.MaxConcurrent), causes: map[ident.PID]pykernel.Cause{}}
}

// start queues every process that is Ready, in pages, oldest first, and begins to give out slots.
func (s *slots) start(ctx context.Context) error {
	var after int64
	for n := -1; n != 0; {
		n = 0
		err := s.host.o.Reader.Query(ctx, `select pid from process where ended_at is null and state = ? and pid > ? order by pid limit 1000`,
			[]any{string(turn.Ready), after}, func(scan func(...any) error) error {
				n++
				err := scan(&after)
				s.mu.Lock()
				s.queue.Ready(ident.PID(after))
				s.mu.Unlock()
				return err
			})
		if err != nil {
			return fmt.Errorf("cannot read who is ready: %w", err)
		}
	}
	return s.tasks.Go(context.WithoutCancel(ctx), "scheduler", s.run)
}

func (s *slots) stop(ctx context.Context) error { return s.tasks.Stop(ctx) }

// update takes a committed change of a process.
func (s *slots) update(u *Update) {
	if !u.WantSlot && !u.DropSlot {
		return
	}
	s.mu.Lock()
	if u.DropSlot {
		s.queue.Done(u.PID)
	}
	if u.WantSlot {
		s.queue.Ready(u.PID)
		s.causes[u.PID] = u.cause
	}
	s.mu.Unlock()
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
