package cells

import (
	"fmt"
	"maps"
	"sync"

	"soma/internal/neuron"
)

// Live knows the session of each cell that runs, for its live output. The zero value is ready; it is safe for concurrent use.
type Live struct {
	mu       sync.Mutex
	sessions map[string]string
}

// Load finds the cells of the places that an earlier daemon started.
func (l *Live) Load(q Querier, places neuron.PlaceSet) error {
	err := q.Query(`select c.id, c.session from kernel k join cell c on c.kernel = k.id and c.state = 'started' where k.state in ('booting', 'running', 'ending')`, nil,
		func(scan func(...any) error) error {
			var id, session string
			err := scan(&id, &session)
			if err == nil && places.Has(neuron.PlaceOf(session)) {
				l.put(id, session)
			}
			return err
		})
	if err != nil {
		return fmt.Errorf("cannot read the running cells: %w", err)
	}
	return nil
}

// Committed takes a committed write.
func (l *Live) Committed(op neuron.Op) {
	switch op := op.(type) {
	case *Insert:
		l.put(op.ID, op.Session)
	case *End:
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.sessions, op.Ended.Cell)
	}
}

func (l *Live) put(cell, session string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sessions == nil {
		l.sessions = map[string]string{}
	}
	l.sessions[cell] = session
}

// Release forgets the cells of places that were given up.
func (l *Live) Release(places neuron.PlaceSet) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.sessions, func(_, session string) bool { return places.Has(neuron.PlaceOf(session)) })
}

// Session returns the session of a running cell, "" where there is none.
func (l *Live) Session(cell string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sessions[cell]
}
