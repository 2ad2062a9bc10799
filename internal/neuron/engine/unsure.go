package engine

import "soma/internal/neuron"

// countFirst writes the attempt of an unsure delivery as one that crashed, and runs it after that commit: if this node dies in
// it, the count is there for whoever takes the place, and if not, the end of the attempt writes the true count over it (N-45).
// The activation keeps its job meanwhile.
//
// A node leaves its list of running deliveries on its own disk. So whoever takes a dead node's place cannot know which of the
// rows was running; charging all of them would end deliveries that never ran. The first crash is therefore not charged where
// another node takes over, every later one is.
func (e *Engine) countFirst(a *activation, j *job) {
	row := *j.row
	e.charge(&row)
	e.mu.Lock()
	a.state = a.state.on(stage)
	e.mu.Unlock()
	e.submit(&staged{
		rec: &neuron.Record{Place: row.Place, Neuron: row.Target, Retried: []neuron.OutboxRow{row}},
		end: func(err error) {
			if err != nil {
				e.failAttempt(a, j, err)
				return
			}
			e.mu.Lock()
			defer e.mu.Unlock()
			j.item.unsure = false
			a.again = j
			e.waiting++
			e.release(a)
		},
	})
}
