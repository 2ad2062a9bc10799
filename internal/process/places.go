package process

import (
	"sync"

	"soma/ident"
	"soma/internal/neuron"
)

// maxPlaces bounds each of the two generations of remembered places.
const maxPlaces = 4096

// places finds the place of a process: that of its session. What was put or asked for lately is remembered; the rest is read
// from the process's row.
type places struct {
	find func(ident.PID) (session string, err error) // "" where there is no row

	mu         sync.Mutex
	young, old map[string]neuron.Place // by the key of the neuron
}

// of returns the place of a process. One without a row, or whose row cannot be read, has the place of its key.
func (p *places) of(id neuron.ID) neuron.Place {
	if place, ok := p.get(id.Key); ok {
		return place
	}
	place := neuron.PlaceOf(id.Key)
	pid, err := ident.ParsePID(id.Key)
	if err != nil {
		return place
	}
	session, err := p.find(pid)
	if err != nil || session == "" {
		return place
	}
	place = neuron.PlaceOf(session)
	p.put(id.Key, place)
	return place
}

func (p *places) get(key string) (neuron.Place, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	place, ok := p.young[key]
	if !ok {
		place, ok = p.old[key]
	}
	return place, ok
}

// put remembers a place; the row of a process may come later.
func (p *places) put(key string, place neuron.Place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.young == nil || len(p.young) >= maxPlaces {
		p.young, p.old = map[string]neuron.Place{}, p.young
	}
	p.young[key] = place
}
