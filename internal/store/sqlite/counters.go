package sqlite

import (
	"context"
	"errors"

	"soma/internal/neuron"
	"soma/internal/store/counter"
)

// next gives an operation the next number of its counter.
func (s *Store) next(ctx context.Context, record int, n neuron.Numbered) error {
	name, key := n.Sequence()
	k := counter.Key{Name: name, Of: key}
	err := s.counts.Load(k, func(query string) (int64, error) {
		last, err := s.w.number(ctx, query, key)
		if errors.Is(err, errNoRow) {
			return 0, nil
		}
		return last, err
	})
	if err != nil {
		return err
	}
	n.SetNumber(s.counts.Next(k, record))
	return nil
}

// saveCounters writes the counters that moved. The record that a failure is laid to is the last that used the counter.
func (s *Store) saveCounters(ctx context.Context) (record int, err error) {
	for _, m := range s.counts.Moved() {
		n, err := s.w.exec(ctx, m.Save, int64(m.Last), m.Key.Of)
		if err != nil {
			return m.Record, err
		}
		if n != 1 {
			return m.Record, m.Lost()
		}
	}
	return 0, nil
}
