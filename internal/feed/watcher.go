package feed

import (
	"context"
	"sync"
)

// Reset tells a follower that what it had not seen yet is partly gone (or was counted by another database): First is the
// first sequence still kept, Last the newest, and Tallies count all items that ever were, per name.
type Reset struct {
	First   uint64            `json:"first"`
	Last    uint64            `json:"last"`
	Tallies map[string]uint64 `json:"tallies,omitempty"`
}

// Page is what a Source found. Where the asked items are partly gone, Gone is set and Items start at First.
type Page[T any] struct {
	Reset
	Gone  bool
	Items []Item[T]
}

// Source reads up to limit stored items after the sequence, oldest first.
type Source[T any] func(ctx context.Context, after uint64, limit int) (Page[T], error)

// Event is what Next returns: an item, or a reset when Reset is not nil.
type Event[T any] struct {
	Item[T]
	Reset *Reset
}

// Watcher follows one feed. Next belongs to one goroutine; Close may be called from any.
type Watcher[T any] struct {
	read  Source[T]
	leave func()
	ready chan struct{} // capacity 1: something changed

	mu     sync.Mutex
	buf    []Item[T]
	behind bool // numbered items are in the store that buf does not hold
	closed bool

	// Next's own.
	last    uint64
	foreign bool
	page    []Item[T]
}

// Next waits for the next event. It returns the context's error when that ends first, ErrClosed after Close, or the
// source's error, after which it may be called again.
func (w *Watcher[T]) Next(ctx context.Context) (Event[T], error) {
	for {
		if len(w.page) > 0 {
			item := w.page[0]
			w.page = w.page[1:]
			if item.Seq <= w.last {
				continue
			}
			w.last = item.Seq
			return Event[T]{Item: item}, nil
		}
		item, got, behind, closed := w.take()
		switch {
		case closed:
			return Event[T]{}, ErrClosed
		case behind:
			reset, err := w.load(ctx)
			if err != nil {
				return Event[T]{}, err
			}
			if reset != nil {
				return Event[T]{Reset: reset}, nil
			}
		case !got:
			select {
			case <-w.ready:
			case <-ctx.Done():
				return Event[T]{}, context.Cause(ctx)
			}
		case item.Seq == 0:
			return Event[T]{Item: item}, nil
		case item.Seq == w.last+1:
			w.last = item.Seq
			return Event[T]{Item: item}, nil
		case item.Seq > w.last:
			w.fallBehind()
		}
	}
}

// Last returns the sequence of the last item that Next returned or skipped by a reset.
func (w *Watcher[T]) Last() uint64 { return w.last }

// Close ends the watcher. It may be called more than once.
func (w *Watcher[T]) Close() {
	if w.leave != nil {
		w.leave()
	}
	w.end()
}

func (w *Watcher[T]) end() {
	w.mu.Lock()
	w.closed, w.buf = true, nil
	w.mu.Unlock()
	w.wake()
}

func (w *Watcher[T]) wake() {
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// offer takes items without waiting; numbered ones that do not fit make the watcher read the store.
func (w *Watcher[T]) offer(items []Item[T]) {
	w.mu.Lock()
	for _, item := range items {
		switch {
		case w.closed || w.behind && item.Seq != 0:
		case item.Seq == 0:
			// Half of the room is kept for what must not be missed.
			if len(w.buf) < buffered/2 {
				w.buf = append(w.buf, item)
			}
		case len(w.buf) < buffered:
			w.buf = append(w.buf, item)
		default:
			w.behind, w.buf = true, nil
		}
	}
	w.mu.Unlock()
	w.wake()
}

// take returns what is at hand. Being behind comes first and is cleared: items published from here on are buffered again
// and overlap with what the store returns, which load's caller skips by sequence.
func (w *Watcher[T]) take() (item Item[T], got, behind, closed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed:
		return item, false, false, true
	case w.behind:
		w.behind, w.buf = false, nil
		return item, false, true, false
	case len(w.buf) > 0:
		item, w.buf = w.buf[0], w.buf[1:]
		return item, true, false, false
	}
	return item, false, false, false
}

func (w *Watcher[T]) fallBehind() {
	w.mu.Lock()
	w.behind, w.buf = true, nil
	w.mu.Unlock()
}

func (w *Watcher[T]) load(ctx context.Context) (*Reset, error) {
	page, err := w.read(ctx, w.last, pageSize)
	if err != nil {
		w.fallBehind()
		return nil, err
	}
	w.page = page.Items
	if len(page.Items) >= pageSize {
		w.fallBehind()
	}
	if !page.Gone && !w.foreign {
		return nil, nil
	}
	w.foreign = false
	if page.First > 0 {
		w.last = max(w.last, page.First-1)
	}
	return &page.Reset, nil
}
