package sqlite

import (
	"context"
	"errors"
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

// next gives the next number of a counter to a record of the group.
func (c *counters) next(ctx context.Context, w *writer, name, key string, record int) (uint64, error) {
	k := counterKey{name, key}
	m, ok := c.group[k]
	if !ok {
		last, known := c.known[k]
		if !known {
			class, ok := c.classes[name]
			if !ok {
				return 0, fmt.Errorf("no sequence %q", name)
			}
			n, err := w.number(ctx, class.Last, key)
			if err != nil && !errors.Is(err, errNoRow) {
				return 0, fmt.Errorf("cannot load counter %s of %s: %w", name, key, err)
			}
			last = uint64(n)
		}
		m.last = last
		c.order = append(c.order, k)
	}
	m.last++
	m.record = record
	c.group[k] = m
	return m.last, nil
}

// save writes the counters that moved. The record that a failure is laid to is the last that used the counter.
func (c *counters) save(ctx context.Context, w *writer) (record int, err error) {
	for _, k := range c.order {
		m, save := c.group[k], c.classes[k.name].Save
		if save == "" {
			continue
		}
		n, err := w.exec(ctx, save, int64(m.last), k.key)
		if err != nil {
			return m.record, err
		}
		if n != 1 {
			return m.record, fmt.Errorf("cannot save counter %s of %s: no row holds it", k.name, k.key)
		}
	}
	return 0, nil
}

func (c *counters) keep() {
	if len(c.known)+len(c.group) > maxCounters {
		clear(c.known)
	}
	for k, m := range c.group {
		c.known[k] = m.last
	}
	c.drop()
}

func (c *counters) drop() {
	clear(c.group)
	c.order = c.order[:0]
}
