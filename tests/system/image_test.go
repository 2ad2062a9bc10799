//go:build crash

package system_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite"

	"soma/ident"
	"soma/internal/config"
	"soma/wire"
)

// image is a copy of a home's database: what a crash has left on the disk, or what is there after a stop.
type image struct{ db *sql.DB }

// takeImage copies the database of a home that no daemon has open; nothing is changed in the home, so that recovery meets
// what the crash has left. It is nil where there is no database yet.
func takeImage(home config.Home, dir string) (*image, error) {
	to := filepath.Join(dir, "image.db")
	for _, suffix := range []string{"", "-wal"} {
		b, err := os.ReadFile(home.Database() + suffix)
		if err := errors.Join(os.RemoveAll(to+suffix), os.RemoveAll(to+"-shm")); err != nil {
			return nil, err
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(to+suffix, b, 0o600); err != nil {
			return nil, err
		}
	}
	db, err := sql.Open("sqlite", to)
	if err != nil {
		return nil, err
	}
	var tables int
	err = db.QueryRow(`select count(*) from sqlite_schema`).Scan(&tables)
	if err == nil && tables == 0 {
		return nil, db.Close()
	}
	return &image{db}, err
}

func (m *image) close() { _ = m.db.Close() }

// none fails with a text for the first row of a query whose one column says what is wrong.
func (m *image) none(ctx context.Context, what, query string, args ...any) error {
	var text string
	err := m.db.QueryRowContext(ctx, query, args...).Scan(&text)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", what, err)
	}
	return fmt.Errorf("%s: %s", what, text)
}

// consistent holds at every instant, whatever was killed.
func (m *image) consistent(ctx context.Context) error {
	return errors.Join(
		m.none(ctx, "a process is running without an execution", `select p.pid || ' has ' || count(x.id)
from process p left join execution x on x.neuron = p.owner || '/process/' || p.pid
where p.state = 'running' group by p.pid having count(x.id) <> 1`),
		m.none(ctx, "an execution belongs to no running process", `select x.neuron from execution x
where not exists (select 1 from process p where x.neuron = p.owner || '/process/' || p.pid and p.state = 'running')`),
		m.none(ctx, "a place is leased under another epoch than the daemon's", `select l.place from lease l join node n on n.id = l.holder
where l.epoch <> n.epoch`),
		m.none(ctx, "a process waits for calls and none is open", `select p.pid from process p where p.state = 'blocked' and p.reason = 'tool'
and not exists (select 1 from tool_call c where c.pid = p.pid and c.state = 'running')`),
		m.none(ctx, "a call is open and its cell is not", `select c.call_id from tool_call c where c.state = 'running'
and not exists (select 1 from cell where cell.id = c.cell and cell.state = 'started')`),
		m.none(ctx, "a cell is open and its frame is not there", `select c.id from cell c where c.state = 'started'
and not exists (select 1 from kernel_frame f where f.kernel = c.kernel and f.cell = c.id)`),
		m.none(ctx, "a frame is for a cell that is not open", `select f.cell from kernel_frame f
where not exists (select 1 from cell c where c.id = f.cell and c.state = 'started')`),
		m.none(ctx, "a delivery was handled twice", `select json_extract(incoming, '$.id') || ' ' || json_extract(incoming, '$.alias') from turn
group by json_extract(incoming, '$.id'), neuron having count(*) > 1`),
		m.none(ctx, "events have a gap", `select session || ' has ' || count(*) || ' of ' || max(seq) from event group by session
having count(*) <> max(seq)`),
		m.none(ctx, "messages have a gap", `select hex(branch) || ' ' || count(*) from message group by branch having count(*) <> max(seq)`),
		m.none(ctx, "a frame has a number that was not given", `select f.seq from kernel_frame f left join kernel k on k.id = f.kernel
where k.id is null or f.seq > k.last_seq`),
	)
}

// settled holds after the work has ended, the python kernels too, and the daemon has stopped.
func (m *image) settled(ctx context.Context) error {
	return errors.Join(
		m.none(ctx, "the outbox is not drained", `select target || ' ' || json_extract(delivery, '$.alias') from outbox`),
		m.none(ctx, "there is a dead letter", `select json_extract(delivery, '$.alias') || ' ' || code || ' ' || error from dead_letter`),
		m.none(ctx, "an execution is left", `select neuron from execution`),
		m.none(ctx, "a cell has no end", `select id from cell where state <> 'ended'`),
		m.none(ctx, "a call has no end", `select call_id from tool_call where state <> 'ended'`),
		m.none(ctx, "an input was not delivered", `select client_id || ' ' || state from input where state <> 'delivered'`),
		m.none(ctx, "a python kernel has no end", `select id || ' ' || state from kernel where state <> 'ended'`),
		m.none(ctx, "frames are left", `select kernel from kernel_frame union all select kernel from kernel_inbox`),
		m.none(ctx, "a process has no end", `select pid || ' ' || state || ' ' || reason from process where state <> 'terminated' or exit_code <> 0`),
	)
}

// events reads the rows of a session's events.
func (m *image) events(ctx context.Context, session string) ([]wire.Event, error) {
	rows, err := m.db.QueryContext(ctx, `select seq, pid, kind, body, at from event where session = ? order by seq`, session)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []wire.Event
	for rows.Next() {
		e := wire.Event{Session: session}
		var body []byte
		var at int64
		if err := rows.Scan(&e.Seq, &e.PID, &e.Kind, &body, &at); err != nil {
			return nil, err
		}
		e.Body, e.At = json.RawMessage(body), time.UnixMicro(at).UTC()
		all = append(all, e)
	}
	return all, rows.Err()
}

// starts counts the committed starts of a cell by its code.
func (m *image) starts(ctx context.Context, session, code string) (n int, err error) {
	return n, m.db.QueryRowContext(ctx, `select count(*) from cell where session = ? and code = ?`, session, code).Scan(&n)
}

// ledger reads the ledger's rows of a process in order.
func (m *image) ledger(ctx context.Context, pid uint64) ([]wire.LedgerRow, error) {
	rows, err := m.db.QueryContext(ctx, `select id, step, attempt, outcome, input, cache_read, cache_write, output from ledger
where pid = ? order by step, attempt`, int64(pid))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []wire.LedgerRow
	for rows.Next() {
		var r wire.LedgerRow
		var id []byte
		u := &r.Usage
		if err := rows.Scan(&id, &r.Step, &r.Attempt, &r.Outcome, &u.Input, &u.CacheRead, &u.CacheWrite, &u.Output); err != nil {
			return nil, err
		}
		key, err := ident.FromBytes(id)
		if err != nil {
			return nil, err
		}
		r.ID = key.String()
		all = append(all, r)
	}
	return all, rows.Err()
}

// schema returns the schema's number and whether a table is there.
func (m *image) schema(ctx context.Context, table string) (number string, there bool, err error) {
	var n int
	err = errors.Join(
		m.db.QueryRowContext(ctx, `select value from meta where name = 'schema'`).Scan(&number),
		m.db.QueryRowContext(ctx, `select count(*) from sqlite_schema where name = ?`, table).Scan(&n),
	)
	return number, n > 0, err
}
