package recent

import "sync"

// Map remembers values that never become wrong: what was put lately. It is two maps, of which the older one goes when the
// younger one is full, so that at least max and at most 2·max values are kept. It is safe for concurrent use.
type Map[K comparable, V any] struct {
	max int

	mu         sync.Mutex
	young, old map[K]V
}

// New returns an empty Map that keeps at least max values.
func New[K comparable, V any](max int) *Map[K, V] { return &Map[K, V]{max: max} }

// Get returns the value of k.
func (r *Map[K, V]) Get(k K) (V, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, ok := r.young[k]
	if !ok {
		v, ok = r.old[k]
	}
	return v, ok
}

// Clear forgets everything.
func (r *Map[K, V]) Clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.young, r.old = nil, nil
}

// Put remembers v.
func (r *Map[K, V]) Put(k K, v V) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.young == nil || len(r.young) >= r.max {
		r.young, r.old = map[K]V{}, r.young
	}
	r.young[k] = v
}
