package engine

import (
	"context"
	"errors"
	"fmt"

	"soma/ident"
	"soma/internal/lifecycle"
	"soma/internal/neuron"
	"soma/internal/neuron/inflight"
)

// Start begins a life of the node, gains the places that come with it, charges crashes, and sets everything going that waits
// there. It returns once deliveries are taken. After an error the engine is of no use.
func (e *Engine) Start(ctx context.Context) error {
	e.mu.Lock()
	if e.phase != created {
		e.mu.Unlock()
		return errors.New("cannot start the engine: it was started before")
	}
	e.phase = started
	e.mu.Unlock()
	e.moving.Lock()
	defer e.moving.Unlock()
	arrived, err := e.restore(ctx)
	if err != nil {
		return fmt.Errorf("cannot start the engine: %w", err)
	}
	e.loops.Report, e.commits.Report = broke, broke
	ctx = context.WithoutCancel(ctx) // Stop ends the engine
	start := func(err error) {
		if err != nil {
			e.halt(err)
		}
	}
	start(e.commits.Go(ctx, "committer", e.commitLoop))
	start(e.takeIn(ctx, arrived))
	e.mu.Lock()
	e.crew.want = workers()
	for range e.crew.want {
		err = errors.Join(err, e.hire(ctx))
	}
	e.mu.Unlock()
	start(err)
	start(e.loops.Go(ctx, "calls", e.calls.Run))
	start(e.loops.Go(ctx, "clock", e.clockLoop))
	return nil
}

// restore reads what the last run left and commits what the new one must count before anything runs.
func (e *Engine) restore(ctx context.Context) (*arrival, error) {
	fence, err := e.store.Claim(ctx, e.node)
	if err != nil {
		return nil, fmt.Errorf("cannot claim the places: %w", err)
	}
	e.fence.Store(&fence)
	file, crashed, ids, err := inflight.Open(e.path)
	if err != nil {
		return nil, err
	}
	if file != nil {
		file.Fault = func(cause any) {
			e.log.Error("the file of running deliveries was cut short: crashes are not charged until the next start", "path", e.path, "fault", cause)
		}
	}
	e.inflight, e.crashed, e.wereRunning = file, crashed, map[ident.ID]struct{}{}
	e.suspects = file.Suspects()
	err = e.rows(ctx, ids, func(row *neuron.OutboxRow) { e.wereRunning[row.ID] = struct{}{} })
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		if _, ok := e.wereRunning[id]; !ok {
			e.suspects[id]++
		}
	}
	// What comes with the claim was this node's own before, or of a life that nobody else can end.
	taken := map[neuron.Place]neuron.Taken{}
	for p := range fence.Places.Held().All() {
		taken[p] = neuron.Taken{Epoch: fence.Places[p], From: e.node}
	}
	arrived, err := e.collect(ctx, taken, func(ctx context.Context, group []*neuron.Record) error {
		return e.store.Commit(ctx, e.Fence(), group)
	})
	if err != nil {
		return nil, err
	}
	file.Begin(e.suspects)
	return arrived, nil
}

// Stop takes nothing more, lets running handlers finish, ends executions, commits what waits, and waits for all of it until
// ctx is done. What is queued is answered with neuron.ErrStopped; outbox rows and executions are recovered by the next
// start. It may be called again, to wait longer.
func (e *Engine) Stop(ctx context.Context) error {
	e.mu.Lock()
	if e.phase < stopping {
		e.phase = stopping
		close(e.ending)
		e.runnable.Broadcast()
	}
	e.mu.Unlock()
	e.settleDown(ctx)
	e.answerQueued(neuron.ErrStopped)
	errs := []error{e.runs.Stop(ctx), e.loops.Stop(ctx)}
	c := &e.pending
	c.mu.Lock()
	c.closed, c.flush = true, true
	c.arrived.Signal()
	c.mu.Unlock()
	// The committer ends with its queue; its context does not matter to it.
	errs = append(errs, e.commits.Stop(ctx))
	e.journals.Close()
	err := errors.Join(errs...)
	if err != nil {
		return fmt.Errorf("cannot stop the engine: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.phase == stopping {
		e.phase = stopped
		return e.inflight.Close()
	}
	return nil
}

// settleDown waits until no handler runs, so that none is cut off by the end of its context.
func (e *Engine) settleDown(ctx context.Context) {
	for {
		e.mu.Lock()
		if e.running == 0 {
			e.mu.Unlock()
			return
		}
		c := make(chan struct{})
		e.handlers = append(e.handlers, c)
		e.mu.Unlock()
		select {
		case <-c:
		case <-ctx.Done():
			return // the workers' owner says who still runs
		}
	}
}

// halt ends the engine's work because nothing can be committed or projected any more.
func (e *Engine) halt(err error) {
	e.mu.Lock()
	first := e.failed == nil
	if first {
		e.failed = err
	}
	e.runnable.Broadcast()
	e.mu.Unlock()
	if !first {
		return
	}
	close(e.broken)
	e.log.Error("the engine cannot go on", "error", err)
	e.answerQueued(err)
	if e.fatal != nil {
		e.fatal(err)
	}
}

// broke ends the program as a kill does, and the next start recovers: what has panicked is the engine's own code (handlers,
// adapters and the commit hook have doors of their own), which may hold its lock, so nothing could be ended in order.
func broke(name string, err error) {
	var stack []byte
	if p := (*lifecycle.PanicError)(nil); errors.As(err, &p) {
		stack = p.Stack
	}
	panic(fmt.Sprintf("the engine's %s: %v\n%s", name, err, stack))
}

// answerQueued answers the callers whose deliveries nobody will run.
func (e *Engine) answerQueued(err error) {
	e.mu.Lock()
	var jobs []*job
	for _, a := range e.warm {
		for a.queued() > 0 {
			jobs = append(jobs, a.nextJob())
			e.waiting--
		}
	}
	e.mu.Unlock()
	for _, j := range jobs {
		e.answer(j, err)
	}
}

// openLocked returns why the engine takes nothing.
func (e *Engine) openLocked() error {
	switch err := e.Believes(); {
	case e.failed != nil:
		return e.failed
	case err != nil:
		return err
	case e.phase == created:
		return errors.New("engine not started")
	case e.phase >= stopping:
		return neuron.ErrStopped
	}
	return nil
}

func (e *Engine) open() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.openLocked()
}

// failure returns why nothing can be committed any more, nil if it can.
func (e *Engine) failure() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.failed
}

// why returns the reason that ends what was not committed.
func (e *Engine) why() error {
	if err := e.failure(); err != nil {
		return err
	}
	return neuron.ErrStopped
}

func (e *Engine) stops() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.phase >= stopping || e.failed != nil
}

// checkQuiet tells those who wait for it that nothing runs.
func (e *Engine) checkQuiet() {
	if e.running == 0 {
		for _, c := range e.handlers {
			close(c)
		}
		e.handlers = nil
	}
	if len(e.quiet) == 0 || !e.isQuiet() {
		return
	}
	for _, c := range e.quiet {
		close(c)
	}
	e.quiet = nil
}
