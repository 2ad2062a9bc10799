package process

import (
	"context"
	"errors"
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
	host *Host

	mu     sync.Mutex
	queue  *schedule.RoundRobin
	closed bool

	tasks   lifecycle.Tasks
	started bool
	ctx     context.Context // of the tasks; Tasks.Stop ends what comes from it
}

func newSlots(h *Host) *slots {
	return &slots{host: h, queue: schedule.NewRoundRobin(h.o.MaxConcurrent)}
}

// start queues every process that is Ready, in pages, oldest first.
func (s *slots) start(ctx context.Context) error {
	s.mu.Lock()
	s.ctx, s.started = context.WithoutCancel(ctx), true
	s.mu.Unlock()
	var after int64
	for {
		n := 0
		err := s.host.o.Reader.Query(ctx, `select pid from process where ended_at is null and state = ? and pid > ? order by pid limit 1000`,
			[]any{string(turn.Ready), after}, func(scan func(...any) error) error {
				n++
				if err := scan(&after); err != nil {
					return err
				}
				s.mu.Lock()
				s.queue.Ready(ident.PID(after))
				s.mu.Unlock()
				return nil
			})
		if err != nil || n == 0 {
			s.pump()
			return err
		}
	}
}

func (s *slots) stop(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	return s.tasks.Stop(ctx)
}

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
	s.pump()
}

// pump gives out the slots that are free.
func (s *slots) pump() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.started && !s.closed {
		d := s.queue.Next()
		if d.Kind != schedule.Run {
			return
		}
		err := s.tasks.Go(s.ctx, "dispatch", func(ctx context.Context) error { s.dispatch(ctx, d.PID); return nil })
		if err != nil {
			return // stopping
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
