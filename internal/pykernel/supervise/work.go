package supervise

import (
	"context"
	"sync"
)

// work runs the commits of one python kernel one after the other, in the order in which their frames came. Its queue is
// bounded by the link, which holds only so many frames that are not settled.
type work struct {
	mu    sync.Mutex
	queue []func(context.Context)
	wake  chan struct{}
	over  chan struct{} // closed when run has ended
}

func newWork() *work { return &work{wake: make(chan struct{}, 1), over: make(chan struct{})} }

func (w *work) add(fn func(context.Context)) {
	w.mu.Lock()
	w.queue = append(w.queue, fn)
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// run is called once.
func (w *work) run(ctx context.Context) error {
	defer close(w.over)
	for {
		w.mu.Lock()
		batch := w.queue
		w.queue = nil
		w.mu.Unlock()
		for _, fn := range batch {
			if ctx.Err() != nil {
				return nil
			}
			fn(ctx)
		}
		if len(batch) > 0 {
			continue
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return nil
		}
	}
}

// drain returns when all that was added before has run, or when nothing will run any more: run has ended, or ctx ends.
func (w *work) drain(ctx context.Context) {
	done := make(chan struct{})
	w.add(func(context.Context) { close(done) })
	select {
	case <-done:
	case <-w.over:
	case <-ctx.Done():
	}
}
