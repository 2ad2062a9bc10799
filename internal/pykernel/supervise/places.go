package supervise

import (
	"context"
	"fmt"
	"time"

	"soma/internal/pykernel"
)

// hold counts a python kernel that lives already.
func (s *Supervisor) hold(k *kernel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[k.id] = true
}

// acquire waits for one of the MaxLive places. The longest-idle python kernel without an open cell is ended for it; where
// none is idle the wait is bounded by the first cell's deadline.
func (s *Supervisor) acquire(ctx context.Context, k *kernel) error {
	ctx, cancel := context.WithTimeoutCause(ctx, k.patience(),
		fmt.Errorf("%d python kernels are live, and none became idle within the cell's deadline", s.opt.MaxLive))
	defer cancel()
	for {
		s.mu.Lock()
		if len(s.held) < s.opt.MaxLive {
			s.held[k.id] = true
			s.mu.Unlock()
			return nil
		}
		again := s.change
		victim := s.longestIdle()
		s.mu.Unlock()
		if victim != nil {
			s.evict(ctx, victim)
		}
		select {
		case <-again:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// patience is how long the first open cell may wait.
func (k *kernel) patience() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.cells) == 0 || k.cells[0].timeout <= 0 {
		return noPlaceWait
	}
	return min(k.cells[0].timeout, maxTimeout)
}

// longestIdle returns the idle python kernel that was used longest ago, nil if none is. The caller holds mu.
func (s *Supervisor) longestIdle() *kernel {
	var found *kernel
	var oldest time.Time
	for _, k := range s.kernels {
		if used, ok := k.idle(); ok && (found == nil || used.Before(oldest)) {
			found, oldest = k, used
		}
	}
	return found
}

// evict ends a python kernel to make room, through the committer: where a cell was committed for it just now, it stays.
func (s *Supervisor) evict(ctx context.Context, k *kernel) {
	ops, forget := k.riders() // acknowledged frames are no open cells
	reason := fmt.Sprintf("it was the longest idle of %d and another one was needed", s.opt.MaxLive)
	if err := s.opt.Neurons.Write(ctx, k.place, append(ops, &pykernel.EvictKernel{ID: k.id, Reason: reason})...); err != nil {
		k.log().Info("cannot end an idle python kernel", "err", err)
		return
	}
	forget()
}

// release gives a place back.
func (s *Supervisor) release(k *kernel) {
	s.mu.Lock()
	delete(s.held, k.id)
	s.mu.Unlock()
	s.changed()
}

// changed wakes all who wait for a place.
func (s *Supervisor) changed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.change)
	s.change = make(chan struct{})
}
