package process

import "sync"

// recent remembers values that never become wrong: what was put lately. It is two maps, of which the older one goes when the
// younger one is full, so that at least max and at most 2·max values are kept. It is safe for concurrent use.
type recent[K comparable, V any] struct {
	max int

	mu         sync.Mutex
	young, old map[K]V
}

func newRecent[K comparable, V any](max int) *recent[K, V] { return &recent[K, V]{max: max} }

func (r *recent[K, V]) get(k K) (V, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, ok := r.young[k]
	if !ok {
		v, ok = r.old[k]
	}
	return v, ok
}

func (r *recent[K, V]) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.young, r.old = nil, nil
}

func (r *recent[K, V]) put(k K, v V) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.young == nil || len(r.young) >= r.max {
		r.young, r.old = map[K]V{}, r.young
	}
	r.young[k] = v
}
