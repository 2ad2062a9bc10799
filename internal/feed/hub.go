package feed

import (
	"errors"
	"sync"
)

// ErrClosed is returned by Watcher.Next once the hub or the watcher is closed.
var ErrClosed = errors.New("feed closed")

// buffered is how many items a watcher holds before it is dropped to the store; pageSize is what it reads there at once.
const (
	buffered = 256
	pageSize = 256
)

// Item is one thing on a feed. Seq counts from 1 without gaps per feed; 0 marks a passing item, which is shown to those who
// watch right now and is never stored.
type Item[T any] struct {
	Seq   uint64
	Value T
}

// Hub hands items to the watchers of many feeds, each named by a key. All methods are safe for concurrent use and none
// waits for a watcher.
type Hub[K comparable, T any] struct {
	generation string

	mu       sync.Mutex
	closed   bool
	watchers map[K][]*Watcher[T]
}

// NewHub returns a hub whose cursors carry generation: the name of the database's life that counts the sequences.
func NewHub[K comparable, T any](generation string) *Hub[K, T] {
	return &Hub[K, T]{generation: generation, watchers: map[K][]*Watcher[T]{}}
}

// Generation returns what NewHub was given.
func (h *Hub[K, T]) Generation() string { return h.generation }

// Watched reports whether anybody watches key, so that a publisher can spare building items nobody sees.
func (h *Hub[K, T]) Watched(key K) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.watchers[key]) > 0
}

// Publish hands out committed items, in the order of their sequences. It must be called after their commit, in the order of
// commits.
func (h *Hub[K, T]) Publish(key K, items ...Item[T]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.watchers[key] {
		w.offer(items)
	}
}

// Show hands out a passing item. A watcher that has no room misses it.
func (h *Hub[K, T]) Show(key K, value T) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.watchers[key] {
		w.offer([]Item[T]{{Value: value}})
	}
}

// Watch follows key from the item after the cursor; read is where the watcher finds what it was not handed. A cursor of
// another generation starts with a reset. The caller closes the watcher.
func (h *Hub[K, T]) Watch(key K, after Cursor, read Source[T]) *Watcher[T] {
	w := &Watcher[T]{read: read, ready: make(chan struct{}, 1), behind: true, last: after.Seq}
	if after.Generation != "" && after.Generation != h.generation {
		w.last, w.foreign = 0, true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		w.closed = true
		return w
	}
	w.leave = func() { h.remove(key, w) }
	h.watchers[key] = append(h.watchers[key], w)
	return w
}

// Close ends all watchers; later ones are closed from the start.
func (h *Hub[K, T]) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, list := range h.watchers {
		for _, w := range list {
			w.end()
		}
	}
	clear(h.watchers)
}

// End ends the watchers of the feeds that are asked for; later ones may come again.
func (h *Hub[K, T]) End(of func(K) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, list := range h.watchers {
		if !of(key) {
			continue
		}
		for _, w := range list {
			w.end()
		}
		delete(h.watchers, key)
	}
}

func (h *Hub[K, T]) remove(key K, w *Watcher[T]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.watchers[key]
	for i, other := range list {
		if other == w {
			list[i] = list[len(list)-1]
			list[len(list)-1] = nil
			list = list[:len(list)-1]
			break
		}
	}
	if len(list) == 0 {
		delete(h.watchers, key)
		return
	}
	h.watchers[key] = list
}
