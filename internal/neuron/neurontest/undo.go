package neurontest

// Table is the one table of a Store: texts by key.
type Table struct {
	rows map[string]string
	undo *undo
}

// Get returns the text of a key, and whether there is one.
func (t *Table) Get(key string) (string, bool) {
	v, ok := t.rows[key]
	return v, ok
}

// Set writes the text of a key.
func (t *Table) Set(key, value string) { set(t.undo, t.rows, key, value) }

// undo takes back what a group has written so far.
type undo struct{ steps []func() }

func (u *undo) add(step func()) { u.steps = append(u.steps, step) }

func (u *undo) all() {
	for i := len(u.steps) - 1; i >= 0; i-- {
		u.steps[i]()
	}
}

func set[K comparable, V any](u *undo, m map[K]V, key K, value V) {
	old, ok := m[key]
	u.add(func() {
		if ok {
			m[key] = old
		} else {
			delete(m, key)
		}
	})
	m[key] = value
}

func remove[K comparable, V any](u *undo, m map[K]V, key K) {
	if old, ok := m[key]; ok {
		u.add(func() { m[key] = old })
		delete(m, key)
	}
}
