package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
)

// statements are the prepared queries of the reading side, by text.
type statements struct {
	db *sql.DB

	mu    sync.Mutex
	cache map[string]*sql.Stmt
}

// get returns the prepared statement of text, nil when the bound is reached. Within a transaction it prepares none: that
// takes a second connection, and transactions that hold all of them would wait for each other.
func (q *statements) get(ctx context.Context, tx *sql.Tx, text string) (*sql.Stmt, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s, ok := q.cache[text]; ok {
		return s, nil
	}
	if tx != nil || len(q.cache) >= maxStatements {
		return nil, nil
	}
	s, err := q.db.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	if q.cache == nil {
		q.cache = map[string]*sql.Stmt{}
	}
	q.cache[text] = s
	return s, nil
}

// prepare prepares the statements that run within transactions.
func (q *statements) prepare(ctx context.Context, texts ...string) error {
	for _, text := range texts {
		if _, err := q.get(ctx, nil, text); err != nil {
			return err
		}
	}
	return nil
}

func (q *statements) close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	var errs []error
	for _, s := range q.cache {
		errs = append(errs, s.Close())
	}
	q.cache = nil
	return errors.Join(errs...)
}

// each runs a query, within tx where one is given, and calls row for every row of it.
func (q *statements) each(ctx context.Context, tx *sql.Tx, text string, args []any, row func(scan func(...any) error) error) error {
	s, err := q.get(ctx, tx, text)
	if err != nil {
		return err
	}
	var rows *sql.Rows
	switch {
	case s != nil && tx != nil:
		rows, err = tx.StmtContext(ctx, s).QueryContext(ctx, args...)
	case s != nil:
		rows, err = s.QueryContext(ctx, args...)
	case tx != nil:
		rows, err = tx.QueryContext(ctx, text, args...)
	default:
		rows, err = q.db.QueryContext(ctx, text, args...)
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

// snapshot runs fn within one read transaction: what it reads is of one moment.
func (s *Store) snapshot(ctx context.Context, fn func(tx *sql.Tx) error) error {
	tx, err := s.reads.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	err = fn(tx)
	if rerr := tx.Rollback(); err == nil && !errors.Is(rerr, sql.ErrTxDone) {
		err = rerr
	}
	return err
}

// Query runs a read over committed rows and calls row for each. The connection refuses statements that write.
func (s *Store) Query(ctx context.Context, text string, args []any, row func(scan func(dest ...any) error) error) error {
	if err := s.queries.each(ctx, nil, text, args, row); err != nil {
		return fmt.Errorf("cannot query: %w", err)
	}
	return nil
}
