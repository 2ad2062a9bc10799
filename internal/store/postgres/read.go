package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"soma/internal/neuron"
	"soma/internal/store/window"
)

// source is what runs queries: the pool, or one connection of it.
type source interface {
	QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error)
}

func each(ctx context.Context, from source, text string, args []any, row func(scan func(...any) error) error) error {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	rows, err := from.QueryContext(ctx, text, args...)
	if errors.Is(err, driver.ErrBadConn) { // several connections broke, one after the other
		return fmt.Errorf("%w: %w", neuron.ErrStoreAway, err)
	}
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (s *Store) each(ctx context.Context, text string, args []any, row func(scan func(...any) error) error) error {
	return each(ctx, s.reads, text, args, row)
}

// rollbackTime bounds the end of a snapshot.
const rollbackTime = 5 * time.Second

// snapshot runs fn with reads that are all of one moment.
func (s *Store) snapshot(ctx context.Context, fn func(read window.Read) error) error {
	c, err := s.reads.Conn(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := command(ctx, c, "begin isolation level repeatable read read only"); err != nil {
		return err
	}
	err = fn(func(ctx context.Context, text string, args []any, row func(scan func(...any) error) error) error {
		return each(ctx, c, text, args, row)
	})
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTime)
	defer cancel()
	if rerr := command(ctx, c, "rollback"); err == nil {
		err = rerr
	}
	return err
}

func command(ctx context.Context, c source, text string) error {
	return each(ctx, c, text, nil, func(func(...any) error) error { return nil })
}

// Query runs a read over committed rows and calls row for each. The connection refuses statements that write.
func (s *Store) Query(ctx context.Context, text string, args []any, row func(scan func(dest ...any) error) error) error {
	if err := s.each(ctx, text, args, row); err != nil {
		return fmt.Errorf("cannot query: %w", err)
	}
	return nil
}
