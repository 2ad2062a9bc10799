package postgres

import (
	"fmt"

	"soma/internal/neuron"
)

// maxCounters bounds the counters kept in memory; past it all are forgotten and loaded again when used.
const maxCounters = 10_000

type counterKey struct{ name, key string }

// moved is a counter that the group under way has used.
type moved struct {
	last   uint64
	record int // the record that used it last
}

// counters give out the numbers of sequences. What a group gives out becomes known by keep, and is forgotten by drop.
type counters struct {
	classes map[string]neuron.Sequence
	known   map[counterKey]uint64
	group   map[counterKey]moved
	order   []counterKey // of group, in order of first use
}

func newCounters(classes []neuron.Sequence) (counters, error) {
	c := counters{classes: map[string]neuron.Sequence{}, known: map[counterKey]uint64{}, group: map[counterKey]moved{}}
	for _, s := range classes {
		if _, ok := c.classes[s.Name]; ok || s.Name == "" || s.Last == "" {
			return c, fmt.Errorf("sequence %q is incomplete or given twice", s.Name)
		}
		c.classes[s.Name] = s
	}
	return c, nil
}

// next gives the next number of a known counter to a record of the group.
func (c *counters) next(k counterKey, record int) uint64 {
	m, ok := c.group[k]
	if !ok {
		m.last = c.known[k]
		c.order = append(c.order, k)
	}
	m.last++
	m.record = record
	c.group[k] = m
	return m.last
}

func (c *counters) keep() {
	for k, m := range c.group {
		c.known[k] = m.last
	}
	clear(c.group)
	c.order = c.order[:0]
	if len(c.known) > maxCounters {
		clear(c.known)
	}
}

// drop forgets all: what the rows hold is asked again.
func (c *counters) drop() {
	clear(c.known)
	clear(c.group)
	c.order = c.order[:0]
}
