package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"soma/internal/neuron"
	"soma/internal/store/window"
)

// Entries reads a page of one feed, all of one moment.
func (s *Store) Entries(ctx context.Context, id neuron.ID, feed neuron.Feed, after uint64, limit int) (p neuron.Page, err error) {
	err = s.snapshot(ctx, func(tx *sql.Tx) error {
		n, err := s.activation(ctx, tx, id)
		if err != nil {
			return err
		}
		read := func(ctx context.Context, text string, args []any, row func(scan func(...any) error) error) error {
			return s.queries.each(ctx, tx, text, args, row)
		}
		p, err = window.Page(ctx, read, s.options.Limits, &n, feed, after, limit)
		return err
	})
	if err != nil {
		return neuron.Page{}, fmt.Errorf("cannot read the journal of %s: %w", id, err)
	}
	return p, nil
}
