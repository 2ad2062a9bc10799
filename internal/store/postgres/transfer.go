package postgres

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"soma/internal/store/schema"
	"soma/internal/store/transfer"
)

// lifeSign is how long a node without a beat keeps its places, as the daemon opens the store.
const lifeSign = 15 * time.Second

// whole is one connection that reads a database table by table. One goroutine at a time uses it.
type whole struct {
	s     *session
	types map[string][]uint32 // of columns, by table
}

// Snapshot reads a database as of one moment, while nodes may write to it.
type Snapshot struct{ whole }

// Copy is a database that is filled.
type Copy struct{ whole }

var (
	_ transfer.Source = (*Snapshot)(nil)
	_ transfer.Target = (*Copy)(nil)
)

// reading are settings of connections that read and write whole tables.
var reading = map[string]string{"statement_timeout": "0", "enable_seqscan": "on", "default_transaction_isolation": "read committed"}

// OpenSnapshot connects to the database that dsn names, which has this build's schema.
func OpenSnapshot(ctx context.Context, dsn string) (_ *Snapshot, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("cannot read the PostgreSQL store: %w", err)
		}
	}()
	all, err := schema.Load(Migrations())
	if err != nil {
		return nil, err
	}
	w, err := connectWhole(ctx, dsn)
	if err != nil {
		return nil, err
	}
	at := 0
	if err = fits(ctx, w.s); err == nil {
		_, err = w.s.c.Exec(ctx, "begin isolation level repeatable read, read only").ReadAll()
	}
	if err == nil {
		at, err = applied(ctx, w.s, len(all))
	}
	if err == nil && at == 0 {
		err = schema.Foreign(len(all))
	}
	if err != nil {
		w.s.hangUp()
		return nil, err
	}
	return &Snapshot{w}, nil
}

// OpenCopy connects to the database that dsn names and brings it to this build's schema.
func OpenCopy(ctx context.Context, dsn string) (*Copy, error) {
	s, err := Open(ctx, dsn, Options{sealed: true})
	if err != nil {
		return nil, err
	}
	if err := s.Close(); err != nil {
		return nil, err
	}
	w, err := connectWhole(ctx, dsn)
	if err != nil {
		return nil, fmt.Errorf("cannot open the PostgreSQL store: %w", err)
	}
	return &Copy{w}, nil
}

func connectWhole(ctx context.Context, dsn string) (whole, error) {
	base, err := pgconn.ParseConfig(dsn)
	if err != nil {
		return whole{}, errForm
	}
	c, err := connect(ctx, configured(base, reading))
	if err != nil {
		return whole{}, err
	}
	return whole{newSession(c), map[string][]uint32{}}, nil
}

// Close ends the connection.
func (t *whole) Close() error {
	t.s.hangUp()
	return nil
}

// Tables reads the catalogue.
func (t *whole) Tables(ctx context.Context) ([]transfer.Table, error) {
	r, err := t.s.exec(ctx, `select c.relname::text, a.attname::text, a.atttypid::bigint from pg_catalog.pg_class c join pg_catalog.pg_attribute a on a.attrelid = c.oid
		where c.relnamespace = current_schema()::regnamespace and c.relkind in ('r', 'p') and a.attnum > 0 and not a.attisdropped order by c.relname, a.attnum`)
	if err != nil {
		return nil, err
	}
	var out []transfer.Table
	for _, row := range r.Rows {
		table, column := string(row[0]), string(row[1])
		if len(out) == 0 || out[len(out)-1].Name != table {
			out = append(out, transfer.Table{Name: table})
			t.types[table] = nil
		}
		last := &out[len(out)-1]
		last.Columns = append(last.Columns, column)
		t.types[table] = append(t.types[table], uint32(binary.BigEndian.Uint64(row[2])))
	}
	return out, nil
}

func quoted(names ...string) string { return `"` + strings.Join(names, `", "`) + `"` }

// Rows reads a table; the server sends it as fast as it is read.
func (t *whole) Rows(ctx context.Context, table transfer.Table, row func([]any) error) error {
	p, err := t.s.prepare(ctx, "select "+quoted(table.Columns...)+" from "+quoted(table.Name))
	if err != nil {
		return err
	}
	result := t.s.c.ExecPrepared(ctx, p.name, nil, nil, p.results)
	values := make([]any, len(p.columns))
	for err == nil && result.NextRow() {
		for i, b := range result.Values() {
			if values[i], err = decode(p.columns[i], b); err != nil {
				break
			}
		}
		if err == nil {
			err = row(values)
		}
	}
	if err != nil {
		// The rest of the table is not wanted, and the connection of no more use.
		_ = t.s.c.Conn().Close()
	}
	_, cerr := result.Close()
	if err == nil {
		err = cerr
	}
	return err
}

// Epoch is the highest of nodes and places.
func (t *whole) Epoch(ctx context.Context) (uint64, error) {
	n, err := t.s.number(ctx, "select max(epoch) from (select epoch from node union all select epoch from lease) x")
	return uint64(n), err
}

// Number runs a query of one number.
func (t *whole) Number(ctx context.Context, query string) (int64, error) {
	return t.s.number(ctx, query)
}

// Generation names the store.
func (t *whole) Generation(ctx context.Context) (string, error) {
	v, err := t.s.value(ctx, "select value from meta where name = 'generation'")
	text, _ := v.(string)
	return text, err
}

// Seal returns what keeps daemons from the store.
func (t *whole) Seal(ctx context.Context) (*schema.Seal, error) { return sealOf(ctx, t.s) }

func sealOf(ctx context.Context, s *session) (*schema.Seal, error) {
	v, err := s.value(ctx, "select value from meta where name = $1", schema.Sealed)
	text, ok := v.(string)
	if err != nil || !ok {
		return nil, err
	}
	seal := schema.ParseSeal(text)
	return &seal, nil
}

// Alive names a node that has given a sign of life within the time that it may keep its places, "" where there is none. What
// it asks is of now, not of the snapshot's moment, when it is asked through a Copy.
func (t *whole) Alive(ctx context.Context) (string, error) {
	v, err := t.s.value(ctx, "select id from node where beat >= "+serverMicros+" - $1::bigint order by id limit 1", lifeSign.Microseconds())
	id, _ := v.(string)
	return id, err
}

// Nodes tells the lives of all nodes, so that two looks can be compared.
func (t *whole) Nodes(ctx context.Context) (string, error) {
	v, err := t.s.value(ctx, "select coalesce(string_agg(id || ' ' || epoch, ', ' order by id), '') from node")
	text, _ := v.(string)
	return text, err
}

const saveMeta = "insert into meta (name, value) values ($1, $2) on conflict (name) do update set value = excluded.value"

// Prepare seals the database and takes what an interrupted copy has left.
func (c *Copy) Prepare(ctx context.Context, seal schema.Seal) error {
	tables, err := c.Tables(ctx)
	if err != nil {
		return err
	}
	// It is held for as long as the connection is.
	if free, err := c.s.number(ctx, "select pg_try_advisory_lock($1)::int", int64(copyLock)); err != nil || free != 1 {
		return cmp.Or(err, error(&AliveError{}))
	}
	return c.s.transaction(ctx, func() error {
		// A daemon that begins its life here waits for the end of this, and meets the seal.
		if _, err := c.s.exec(ctx, "select pg_advisory_xact_lock($1)", int64(claimLock)); err != nil {
			return err
		}
		was, err := c.Seal(ctx)
		if err != nil {
			return err
		}
		rest := was != nil && was.Kind != schema.Backup
		for _, t := range tables {
			switch {
			case t.Name == "meta" || transfer.Held(t.Name):
				continue
			case rest:
				if _, err := c.s.exec(ctx, "truncate "+quoted(t.Name)); err != nil {
					return err
				}
				continue
			}
			if n, err := c.s.number(ctx, "select count(*) from (select 1 from "+quoted(t.Name)+" limit 1) x"); err != nil || n != 0 {
				return errors.Join(err, transfer.ErrNotEmpty)
			}
		}
		if id, err := c.Alive(ctx); err != nil || id != "" {
			return errors.Join(err, &AliveError{id})
		}
		if _, err := c.s.exec(ctx, "delete from meta where name not in ('generation', 'schema', 'peers')"); err != nil {
			return err
		}
		_, err = c.s.exec(ctx, saveMeta, schema.Sealed, seal.Text())
		return err
	})
}

// AliveError reports a node that uses the database, or another copy into it where Node is empty.
type AliveError struct{ Node string }

func (e *AliveError) Error() string {
	if e.Node == "" {
		return "another copy into it is under way: wait for its end"
	}
	return fmt.Sprintf("node %s uses it: stop its daemon; one that was killed is taken for gone after %s", e.Node, lifeSign)
}

// Fill sends the rows of a table in the server's binary form, in one transaction.
func (c *Copy) Fill(ctx context.Context, table transfer.Table, rows func(func([]any) error) error) error {
	types := c.types[table.Name]
	if len(types) != len(table.Columns) {
		return fmt.Errorf("the columns of %s are not known", table.Name)
	}
	r, w := io.Pipe()
	read := make(chan error, 1)
	go func() {
		err := stream(w, types, rows)
		_ = w.CloseWithError(err) // io.EOF for nil
		read <- err
	}()
	_, err := c.s.c.CopyFrom(ctx, r, "copy "+quoted(table.Name)+" ("+quoted(table.Columns...)+") from stdin (format binary)")
	_ = r.CloseWithError(err)
	if rerr := <-read; rerr != nil && !errors.Is(rerr, io.ErrClosedPipe) && (err == nil || !errors.Is(rerr, err)) {
		return rerr
	}
	return err
}

// chunk is how much of a table is sent at once, in bytes.
const chunk = 64 << 10

// stream writes rows in the binary form of copy.
func stream(w io.Writer, types []uint32, rows func(func([]any) error) error) error {
	b := append([]byte("PGCOPY\n\xff\r\n\x00"), 0, 0, 0, 0, 0, 0, 0, 0)
	err := rows(func(values []any) error {
		b = binary.BigEndian.AppendUint16(b, uint16(len(values)))
		for i, v := range values {
			e, err := encode(types[i], v)
			switch {
			case err != nil:
				return err
			case v == nil:
				b = binary.BigEndian.AppendUint32(b, 0xffffffff)
				continue
			}
			b = binary.BigEndian.AppendUint32(b, uint32(len(e)))
			b = append(b, e...)
		}
		if len(b) < chunk {
			return nil
		}
		_, err := w.Write(b)
		b = b[:0]
		return err
	})
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, 0xff, 0xff))
	return err
}

// Finish ends the work on the database.
func (c *Copy) Finish(ctx context.Context, f transfer.Finish) error {
	if f.Seal != nil {
		_, err := c.s.exec(ctx, saveMeta, schema.Sealed, f.Seal.Text())
		return err
	}
	err := c.s.transaction(ctx, func() error {
		if _, err := c.s.exec(ctx, "select pg_advisory_xact_lock($1)", int64(claimLock)); err != nil {
			return err
		}
		if id, err := c.Alive(ctx); err != nil || id != "" {
			return errors.Join(err, &AliveError{id})
		}
		keys, err := c.s.number(ctx, "select max(key) from neuron")
		if err != nil {
			return err
		}
		var b [16]byte
		rand.Read(b[:])
		for _, m := range [][2]string{{"generation", hex.EncodeToString(b[:])}, {"keys", strconv.FormatInt(keys, 10)}} {
			if _, err := c.s.exec(ctx, saveMeta, m[0], m[1]); err != nil {
				return err
			}
		}
		if _, err := c.s.exec(ctx, "delete from meta where name = $1", schema.Sealed); err != nil {
			return err
		}
		if _, err := c.s.exec(ctx, transfer.EndKernels, f.Reason); err != nil {
			return err
		}
		if _, err := c.s.exec(ctx, "update lease set holder = '', epoch = greatest(epoch, $1) + 1", int64(f.Epoch)); err != nil {
			return err
		}
		return c.numberOn(ctx)
	})
	if err != nil {
		return err
	}
	_, err = c.s.c.Exec(ctx, "analyze").ReadAll() // plans are made once, so the first ones must know the tables
	return err
}

// numberOn moves the columns that the server numbers beyond the rows that were filled in.
func (c *Copy) numberOn(ctx context.Context) error {
	r, err := c.s.exec(ctx, `select c.relname::text, a.attname::text from pg_catalog.pg_class c join pg_catalog.pg_attribute a on a.attrelid = c.oid
		where c.relnamespace = current_schema()::regnamespace and a.attidentity <> '' and not a.attisdropped`)
	if err != nil {
		return err
	}
	for _, row := range r.Rows {
		table, column := string(row[0]), string(row[1])
		_, err := c.s.exec(ctx, "select setval(pg_get_serial_sequence($1, $2), (select coalesce(max("+quoted(column)+"), 0) + 1 from "+quoted(table)+"), false)", table, column)
		if err != nil {
			return err
		}
	}
	return nil
}
