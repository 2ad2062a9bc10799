package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// ErrStopped is returned by [Tasks.Go] once Stop was called, and is the cause of the tasks' cancelled contexts.
var ErrStopped = errors.New("stopped")

// maxKept bounds the errors that Tasks keeps for Stop; further ones are counted.
const maxKept = 16

// Tasks owns the goroutines of one long-lived part. The zero value is ready for use. All methods are safe for use from many
// goroutines, also from its own tasks, but a task must not call Stop.
type Tasks struct {
	// Report, if set before the first Go, is called once for each task that fails or panics, from that task's goroutine.
	// Without it the first errors are kept and returned by Stop.
	Report func(name string, err error)

	mu      sync.Mutex
	stopped bool
	running map[*task]struct{}
	empty   chan struct{} // made by the first Stop; closed when the last task has ended
	errs    []error
	more    int
}

type task struct {
	name   string
	cancel context.CancelCauseFunc
}

// Go runs fn in a goroutine under ctx, which also ends when Stop is called. After Stop it runs nothing and returns ErrStopped.
func (t *Tasks) Go(ctx context.Context, name string, fn func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	k := &task{name, cancel}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		cancel(ErrStopped)
		return ErrStopped
	}
	if t.running == nil {
		t.running = map[*task]struct{}{}
	}
	t.running[k] = struct{}{}
	go guard(ctx, fn, func(err error) {
		defer t.ended(k)
		if err != nil && !stopping(ctx, err) {
			t.failed(name, err)
		}
	})
	return nil
}

// Len returns the number of tasks that run.
func (t *Tasks) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.running)
}

// Stop refuses new tasks, cancels the running ones and waits for them until ctx is done. It returns the kept errors of
// tasks joined, and a [*StopError] with the names of those that still run. It may be called again, to wait longer.
func (t *Tasks) Stop(ctx context.Context) error {
	began := time.Now()
	t.mu.Lock()
	t.stopped = true
	if t.empty == nil {
		t.empty = make(chan struct{})
		if len(t.running) == 0 {
			close(t.empty)
		}
	}
	for k := range t.running {
		k.cancel(ErrStopped)
	}
	empty := t.empty
	t.mu.Unlock()

	select {
	case <-empty:
	case <-ctx.Done():
	}

	t.mu.Lock()
	defer t.mu.Unlock()
	errs := slices.Clone(t.errs)
	if t.more > 0 {
		errs = append(errs, fmt.Errorf("%d more tasks failed", t.more))
	}
	if len(t.running) > 0 {
		late := &StopError{After: time.Since(began)}
		for k := range t.running {
			late.Names = append(late.Names, k.name)
		}
		slices.Sort(late.Names)
		errs = append(errs, late)
	}
	return errors.Join(errs...)
}

func (t *Tasks) failed(name string, err error) {
	if t.Report != nil {
		t.Report(name, err)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.errs) < maxKept {
		t.errs = append(t.errs, fmt.Errorf("%s: %w", name, err))
		return
	}
	t.more++
}

func (t *Tasks) ended(k *task) {
	k.cancel(nil)
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.running, k)
	if t.stopped && len(t.running) == 0 {
		close(t.empty)
	}
}
