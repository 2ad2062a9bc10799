package counter

import (
	"fmt"

	"soma/internal/neuron"
)

// most bounds the counters kept in memory; past it all are forgotten and loaded again when used.
const most = 10_000

// Key names a counter: the name of a sequence, and the key within it.
type Key struct{ Name, Of string }

// Moved is a counter that the group under way has used.
type Moved struct {
	Key    Key
	Last   uint64
	Record int    // the record that used it last, to which a failure to save it is laid
	Save   string // its class's statement
}

type moved struct {
	last   uint64
	record int
}

// Counters are those of one database. One goroutine at a time uses them.
type Counters struct {
	classes map[string]neuron.Sequence
	known   map[Key]uint64
	group   map[Key]moved
	order   []Key // of group, in order of first use
}

// New returns counters of the given classes; a class that is incomplete or given twice is an error.
func New(classes []neuron.Sequence) (*Counters, error) {
	c := &Counters{classes: map[string]neuron.Sequence{}, known: map[Key]uint64{}, group: map[Key]moved{}}
	for _, s := range classes {
		if _, ok := c.classes[s.Name]; ok || s.Name == "" || s.Last == "" {
			return nil, fmt.Errorf("sequence %q is incomplete or given twice", s.Name)
		}
		c.classes[s.Name] = s
	}
	return c, nil
}

// Load makes a counter known: where it is not, last reads the last number given by the class's query, 0 for no row.
func (c *Counters) Load(k Key, last func(query string) (int64, error)) error {
	if _, ok := c.known[k]; ok {
		return nil
	}
	class, ok := c.classes[k.Name]
	if !ok {
		return fmt.Errorf("no sequence %q", k.Name)
	}
	n, err := last(class.Last)
	if err != nil {
		return fmt.Errorf("cannot load counter %s of %s: %w", k.Name, k.Of, err)
	}
	c.known[k] = uint64(n)
	return nil
}

// Next gives the next number of a known counter to a record of the group.
func (c *Counters) Next(k Key, record int) uint64 {
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

// Moved returns the counters that must be saved with the group.
func (c *Counters) Moved() []Moved {
	var out []Moved
	for _, k := range c.order {
		if save := c.classes[k.Name].Save; save != "" {
			out = append(out, Moved{k, c.group[k].last, c.group[k].record, save})
		}
	}
	return out
}

// Lost is the error of a counter whose row Save did not find.
func (m Moved) Lost() error {
	return fmt.Errorf("cannot save counter %s of %s: no row holds it", m.Key.Name, m.Key.Of)
}

// Keep is called when the group is committed: what it gave out is given.
func (c *Counters) Keep() {
	if len(c.known)+len(c.group) > most {
		clear(c.known)
	}
	for k, m := range c.group {
		c.known[k] = m.last
	}
	c.Drop()
}

// Drop is called when the group is not committed: its numbers are given again.
func (c *Counters) Drop() {
	clear(c.group)
	c.order = c.order[:0]
}

// Forget drops the group and all that is known: others may have given numbers meanwhile.
func (c *Counters) Forget() {
	clear(c.known)
	c.Drop()
}
