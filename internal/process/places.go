package process

import (
	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/process/recent"
)

// maxPlaces bounds the remembered places.
const maxPlaces = 4096

// places finds the place of a process: that of its session.
type places struct {
	find  func(ident.PID) (session string, err error) // "" where there is no row
	known *recent.Map[string, neuron.Place]           // by the key of the neuron
}

// of returns the place of a process. One without a row, or whose row cannot be read, has the place of its key.
func (p *places) of(id neuron.ID) neuron.Place {
	if place, ok := p.known.Get(id.Key); ok {
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
	p.put(pid, place)
	return place
}

// put remembers a place; the row of the process may come later.
func (p *places) put(pid ident.PID, place neuron.Place) { p.known.Put(pid.String(), place) }
