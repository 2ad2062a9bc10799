package sqlrecord

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"time"

	"soma/ident"
)

const (
	create = `create table if not exists session_signal (
	session text not null,
	seq bigint not null,
	kind text not null,
	op text not null,
	at bigint not null,
	payload text not null,
	primary key (session, seq)
)`
	insert = `insert into session_signal (session, seq, kind, op, at, payload)
select cast($1 as text), coalesce(max(seq), 0) + 1, cast($2 as text), cast($3 as text), cast($4 as bigint), cast($5 as text)
from session_signal where session = cast($1 as text)`
	read = `select seq, kind, op, at, payload from session_signal where session = $1 and seq > $2 order by seq limit $3`
)

// attempts is how often a row is tried: another program may take the same number at the same moment, and one of the two is refused.
const attempts = 20

// Table is a Store in the table session_signal of a database. The rows are the program's: it may delete the oldest ones of
// a session, never the newest, from which the numbers go on. It may be used from several goroutines, and several may exist
// for one database.
type Table struct {
	db *sql.DB
	mu sync.Mutex // one number after the other
}

// NewTable uses an open database; Create makes the table. Closing the database is the caller's.
func NewTable(db *sql.DB) *Table { return &Table{db: db} }

// Create makes the table where it is not there.
func (t *Table) Create(ctx context.Context) error {
	if _, err := t.db.ExecContext(ctx, create); err != nil {
		return fmt.Errorf("cannot create the table of signals: %w", err)
	}
	return nil
}

// Append writes the row under the next number; r.Seq is not looked at.
func (t *Table) Append(ctx context.Context, r Row) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var err error
	for range attempts {
		if _, err = t.db.ExecContext(ctx, insert, r.Session.String(), r.Kind, r.Op, r.Time.UnixNano(), string(r.Payload)); err == nil {
			return nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return fmt.Errorf("cannot append a signal: %w", err)
}

// Rows returns up to limit rows of a session after a number, in order.
func (t *Table) Rows(ctx context.Context, id ident.ID, after int64, limit int) (list []Row, err error) {
	rows, err := t.db.QueryContext(ctx, read, id.String(), after, limit)
	if err != nil {
		return nil, fmt.Errorf("cannot read signals: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		r := Row{Session: id}
		var at int64
		var payload string
		if err := rows.Scan(&r.Seq, &r.Kind, &r.Op, &at, &payload); err != nil {
			return nil, fmt.Errorf("cannot read a signal: %w", err)
		}
		r.Time, r.Payload = time.Unix(0, at), []byte(payload)
		list = append(list, r)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("cannot read signals: %w", err)
	}
	return list, nil
}
