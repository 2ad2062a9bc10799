package postgres

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"

	"github.com/jackc/pgx/v5/pgconn"
)

// reader is a connection for database/sql, which gives reads their pool and their scanning. It knows queries only.
type reader struct {
	s     *session
	texts *texts
}

// connector opens readers.
type connector struct {
	config *pgconn.Config
	texts  *texts
}

func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := connect(ctx, c.config)
	if err != nil {
		return nil, err
	}
	return &reader{newSession(conn), c.texts}, nil
}

func (c *connector) Driver() driver.Driver { return refused{} }

// refused opens nothing: connections come from the connector.
type refused struct{}

var errQueriesOnly = errors.New("only queries run here")

func (refused) Open(string) (driver.Conn, error) { return nil, errQueriesOnly }

func (r *reader) Prepare(string) (driver.Stmt, error) { return nil, errQueriesOnly }
func (r *reader) Begin() (driver.Tx, error)           { return nil, errQueriesOnly }
func (r *reader) IsValid() bool                       { return !r.s.c.IsClosed() }

func (r *reader) Close() error {
	r.s.hangUp()
	return nil
}

// ResetSession refuses a connection that a failed read left within a transaction.
func (r *reader) ResetSession(context.Context) error {
	if r.s.c.IsClosed() || r.s.c.TxStatus() != 'I' {
		return driver.ErrBadConn
	}
	return nil
}

// CheckNamedValue keeps arrays as they are, which would become bytes.
func (r *reader) CheckNamedValue(v *driver.NamedValue) error {
	if _, ok := v.Value.(array); ok {
		return nil
	}
	return driver.ErrSkip
}

// QueryContext runs one query.
func (r *reader) QueryContext(ctx context.Context, text string, named []driver.NamedValue) (driver.Rows, error) {
	p, err := r.s.prepare(ctx, r.texts.of(text))
	if err != nil {
		return nil, again(ctx, err)
	}
	args := make([]any, len(named))
	for i, a := range named {
		args[i] = a.Value
	}
	values, err := p.bind(args)
	if err != nil {
		return nil, err
	}
	result := r.s.c.ExecPrepared(ctx, p.name, values, p.forms, p.results)
	rows := &rows{p: p, result: result, ready: result.NextRow()}
	if !rows.ready {
		if _, err := result.Close(); err != nil {
			return nil, again(ctx, err)
		}
	}
	return rows, nil
}

// again tells database/sql to ask on another connection where this one broke without the caller's doing: a read may be
// repeated.
func again(ctx context.Context, err error) error {
	if ctx.Err() == nil && broken(err) {
		return driver.ErrBadConn
	}
	return err
}

type rows struct {
	p      *prepared
	result *pgconn.ResultReader
	ready  bool // the first row is there
}

func (r *rows) Columns() []string {
	fields := r.result.FieldDescriptions()
	names := make([]string, len(r.p.columns))
	for i := range min(len(names), len(fields)) {
		names[i] = fields[i].Name
	}
	return names
}

func (r *rows) Close() error {
	_, err := r.result.Close()
	return err
}

func (r *rows) Next(dest []driver.Value) error {
	if !r.ready && !r.result.NextRow() {
		if _, err := r.result.Close(); err != nil {
			return err
		}
		return io.EOF
	}
	r.ready = false
	for i, b := range r.result.Values() {
		v, err := decode(r.p.columns[i], b)
		if err != nil {
			return err
		}
		dest[i] = v
	}
	return nil
}
