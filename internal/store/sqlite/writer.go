package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
)

// conn is what the driver's connections can do.
type conn interface {
	driver.Conn
	driver.ConnPrepareContext
	driver.ExecerContext
}

// statement is what the driver's statements can do.
type statement interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

// writer is one connection used without database/sql, whose locks and checks cost a commit more than the statements do.
// One goroutine at a time uses it.
type writer struct {
	c     conn
	cache map[string]statement
	args  []driver.NamedValue
}

func newWriter(c driver.Conn) *writer {
	return &writer{c: c.(conn), cache: map[string]statement{}}
}

func (w *writer) close() error {
	var errs []error
	for _, s := range w.cache {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, w.c.Close())...)
}

// prepare returns the cached statement of text.
func (w *writer) prepare(ctx context.Context, text string) (statement, error) {
	if s, ok := w.cache[text]; ok {
		return s, nil
	}
	if len(w.cache) >= maxStatements { // statements are constant texts: this is a bound, not a working state
		for k, s := range w.cache {
			if err := s.Close(); err != nil {
				return nil, err
			}
			delete(w.cache, k)
		}
	}
	s, err := w.c.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	st := s.(statement)
	w.cache[text] = st
	return st, nil
}

func (w *writer) bind(args []any) []driver.NamedValue {
	w.args = w.args[:0]
	for i, a := range args {
		w.args = append(w.args, driver.NamedValue{Ordinal: i + 1, Value: a})
	}
	return w.args
}

// exec runs one statement and returns the number of rows it changed.
func (w *writer) exec(ctx context.Context, text string, args ...any) (int64, error) {
	s, err := w.prepare(ctx, text)
	if err != nil {
		return 0, err
	}
	r, err := s.ExecContext(ctx, w.bind(args))
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// script runs a text of several statements.
func (w *writer) script(ctx context.Context, text string) error {
	_, err := w.c.ExecContext(ctx, text, nil)
	return err
}

// pragma sets one.
func (w *writer) pragma(ctx context.Context, text string) error {
	return w.each(ctx, "pragma "+text, nil, func([]driver.Value) error { return nil })
}

func (w *writer) begin(ctx context.Context) error {
	_, err := w.exec(ctx, "begin immediate")
	return err
}
func (w *writer) commit(ctx context.Context) error   { _, err := w.exec(ctx, "commit"); return err }
func (w *writer) rollback(ctx context.Context) error { _, err := w.exec(ctx, "rollback"); return err }

// each calls row for every row of a query, also of a statement that writes and returns rows.
func (w *writer) each(ctx context.Context, text string, args []any, row func(v []driver.Value) error) (err error) {
	s, err := w.prepare(ctx, text)
	if err != nil {
		return err
	}
	rows, err := s.QueryContext(ctx, w.bind(args))
	if err != nil {
		return err
	}
	defer func() {
		if cerr := rows.Close(); err == nil {
			err = cerr
		}
	}()
	v := make([]driver.Value, len(rows.Columns()))
	for {
		if err := rows.Next(v); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := row(v); err != nil {
			return err
		}
	}
}

// errNoRow reports a query of one value that found none.
var errNoRow = errors.New("no row")

func (w *writer) value(ctx context.Context, text string, args ...any) (out driver.Value, err error) {
	found := false
	err = w.each(ctx, text, args, func(v []driver.Value) error {
		if !found {
			out, found = v[0], true
		}
		return nil
	})
	if err == nil && !found {
		err = errNoRow
	}
	return out, err
}

func (w *writer) number(ctx context.Context, text string, args ...any) (int64, error) {
	v, err := w.value(ctx, text, args...)
	if err != nil {
		return 0, err
	}
	switch n := v.(type) {
	case int64:
		return n, nil
	case nil:
		return 0, nil
	}
	return 0, fmt.Errorf("a number is wanted, not %T", v)
}

func (w *writer) text(ctx context.Context, text string, args ...any) (string, error) {
	v, err := w.value(ctx, text, args...)
	if err != nil {
		return "", err
	}
	s, ok := v.(string)
	if !ok {
		return "", fmt.Errorf("a text is wanted, not %T", v)
	}
	return s, nil
}
