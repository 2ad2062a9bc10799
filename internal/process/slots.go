package process

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"soma/ident"
	"soma/internal/agent/schedule"
	"soma/internal/agent/turn"
	"soma/internal/lifecycle"
	"soma/internal/neuron"
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

	mu    sync.Mutex
	queue *schedule.RoundRobin
}

func newSlots(h *Host) *slots {
	return &slots{host: h, kick: make(chan struct{}, 1), queue: schedule.NewRoundRobin(h.o.MaxConcurrent)}
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
		s.mu.Unlock()
		if d.Kind == schedule.Run {
			err := s.tasks.Go(ctx, "dispatch", func(ctx context.Context) error { s.dispatch(ctx, d.PID); return nil })
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
func (s *slots) dispatch(ctx context.Context, pid ident.PID) {
	h := s.host
	d, err := dispatchType.New(processID(h.o.Owner, pid), dispatch{}, h.o.Now())
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
