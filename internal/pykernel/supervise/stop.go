package supervise

import (
	"context"
	"errors"
	"fmt"
	"time"

	"soma/internal/pykernel"
)

// ErrUnknownJob: no such job runs in the python kernel.
var ErrUnknownJob = errors.New("no such job runs")

// StopJob ends a job that runs: its recorded process group by SIGTERM and SIGKILL, one of another machine by asking the python
// kernel. Nil means that nothing of it is left. It is never tried again by itself. Errors: ErrUnknownKernel, ErrUnknownJob;
// ErrUnreachable for a job of another machine; ErrUnanswered where the stop is unconfirmed, and may still happen; *Refused.
func (s *Supervisor) StopJob(ctx context.Context, kernel, job string) error {
	k := s.find(kernel)
	if k == nil {
		return fmt.Errorf("cannot stop job %s: %w", job, ErrUnknownKernel)
	}
	k.mu.Lock()
	j, here := k.jobs[job]
	g, known := k.groupOf(j)
	there := false
	for _, item := range k.external.Items {
		there = there || item.ID == job
	}
	k.mu.Unlock()
	var err error
	switch {
	case here && known:
		err = g.End(ctx)
	case here, there:
		_, err = s.ask(ctx, kernel, pykernel.Ask{Type: pykernel.FrameJobStop, Job: job}, stopWord)
		var refused *Refused
		if errors.As(err, &refused) && refused.Code == pykernel.CodeJobNotFound {
			err = ErrUnknownJob // it has ended meanwhile
		}
	default:
		err = ErrUnknownJob
	}
	if err != nil {
		return fmt.Errorf("cannot stop job %s: %w", job, err)
	}
	return nil
}

// Left is what ended with a python kernel that was asked to.
type Left struct {
	Jobs  []pykernel.Job // that ran, at most pykernel.MaxObserved
	Cells []string       // that had not ended
}

const (
	restartReason = "it was restarted"
	restartWait   = 30 * time.Second
)

// Restart ends a python kernel with its jobs and tells its owner, as EndKernel does, and waits until nothing is left of it, up to
// 30 s; the next cell of its branch begins a new one. Errors: ErrUnknownKernel; that of the commit; where it lives on after
// the wait, the context's cause.
func (s *Supervisor) Restart(ctx context.Context, kernel string) (Left, error) {
	fail := func(err error) (Left, error) {
		return Left{}, fmt.Errorf("cannot restart python kernel %s: %w", kernel, err)
	}
	k := s.find(kernel)
	if k == nil {
		return fail(ErrUnknownKernel)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, restartWait, fmt.Errorf("it has not ended within %s", restartWait))
	defer cancel()
	k.mu.Lock()
	left := Left{Jobs: k.stopped()}
	for _, c := range k.cells {
		left.Cells = append(left.Cells, c.id)
	}
	k.mu.Unlock()
	if err := s.opt.Neurons.Write(ctx, k.place, &pykernel.EndKernel{ID: kernel, Reason: restartReason}); err != nil {
		return fail(err)
	}
	for {
		s.mu.Lock()
		lives, change := s.kernels[kernel] == k, s.change
		s.mu.Unlock()
		if !lives {
			return left, nil
		}
		select {
		case <-change:
		case <-ctx.Done():
			return fail(context.Cause(ctx))
		}
	}
}
