package sqlite

import (
	"context"
	"crypto/rand"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	lib "modernc.org/sqlite/lib"

	"soma/internal/store/schema"
	"soma/internal/store/transfer"
)

// whole is one connection that reads a database table by table. One goroutine at a time uses it.
type whole struct {
	w     *writer
	types map[string][]string // of columns, by table
}

// Snapshot reads a database as of one moment, while others may write to it. It holds back what a checkpoint would drop from
// the WAL until it is closed.
type Snapshot struct{ whole }

var (
	_ transfer.Source = (*Snapshot)(nil)
	_ transfer.Target = (*Copy)(nil)
)

// OpenSnapshot opens the database at path, which exists. Errors: *SchemaError for another schema or program; those of the
// system.
func OpenSnapshot(ctx context.Context, path string) (_ *Snapshot, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("cannot read the store %s: %w", path, known(err))
		}
	}()
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() || info.Size() == 0 {
		return nil, foreign()
	}
	conn, err := connect(ctx, path, "query_only(1)")
	if err != nil {
		return nil, err
	}
	s := &Snapshot{whole{w: newWriter(conn), types: map[string][]string{}}}
	if err := s.begin(ctx); err != nil {
		return nil, errors.Join(err, s.w.close())
	}
	return s, nil
}

func (s *Snapshot) begin(ctx context.Context) error {
	all, err := schema.Load(Migrations())
	if err != nil {
		return err
	}
	if _, err := s.w.exec(ctx, "begin"); err != nil {
		return err
	}
	at, err := applied(ctx, s.w, len(all)) // the first read: from here on it is one moment
	if err == nil && at == 0 {
		err = schema.Foreign(len(all))
	}
	return err
}

// Close ends the snapshot.
func (s *Snapshot) Close() error { return s.w.close() }

// foreign is the error for a file that is no database of this program.
func foreign() error {
	all, _ := schema.Load(Migrations()) // they are embedded, and tested
	return schema.Foreign(len(all))
}

// known names what the driver's codes say about a file.
func known(err error) error {
	switch code(err) & 0xff {
	case lib.SQLITE_NOTADB:
		return foreign()
	case lib.SQLITE_CORRUPT:
		return fmt.Errorf("%w: the file is damaged", err)
	}
	return err
}

// Tables reads the catalogue.
func (t *whole) Tables(ctx context.Context) ([]transfer.Table, error) {
	var out []transfer.Table
	err := t.w.each(ctx, `select m.name, c.name, c.type from sqlite_schema m join pragma_table_info(m.name) c
		where m.type = 'table' and m.name not like 'sqlite\_%' escape '\' order by m.name, c.cid`, nil, func(v []driver.Value) error {
		table, column, kind := v[0].(string), v[1].(string), v[2].(string)
		if len(out) == 0 || out[len(out)-1].Name != table {
			out = append(out, transfer.Table{Name: table})
			t.types[table] = nil
		}
		last := &out[len(out)-1]
		last.Columns = append(last.Columns, column)
		t.types[table] = append(t.types[table], kind)
		return nil
	})
	return out, err
}

func quoted(names []string) string { return `"` + strings.Join(names, `", "`) + `"` }

// Rows reads a table.
func (t *whole) Rows(ctx context.Context, table transfer.Table, row func([]any) error) error {
	var values []any
	return t.w.each(ctx, "select "+quoted(table.Columns)+" from "+quoted([]string{table.Name}), nil, func(v []driver.Value) error {
		values = values[:0]
		for _, one := range v {
			values = append(values, one)
		}
		return row(values)
	})
}

// Epoch is the highest of nodes and places.
func (t *whole) Epoch(ctx context.Context) (uint64, error) {
	n, err := t.w.number(ctx, "select max(epoch) from (select epoch from node union all select epoch from lease)")
	return uint64(n), err
}

// Number runs a query of one number.
func (t *whole) Number(ctx context.Context, query string) (int64, error) {
	n, err := t.w.number(ctx, query)
	return n, known(err)
}

// Seal returns what keeps daemons from the store.
func (t *whole) Seal(ctx context.Context) (*schema.Seal, error) { return sealOf(ctx, t.w) }

// Generation names the store.
func (t *whole) Generation(ctx context.Context) (string, error) {
	return t.w.text(ctx, "select value from meta where name = 'generation'")
}

// Check looks for damage in the whole file, which takes as long as reading it; the error tells of the first three places.
func (t *whole) Check(ctx context.Context) error {
	var faults []string
	err := t.w.each(ctx, "pragma integrity_check(3)", nil, func(v []driver.Value) error {
		if text, _ := v[0].(string); text != "ok" {
			faults = append(faults, strings.Join(strings.Fields(text), " "))
		}
		return nil
	})
	if err == nil && len(faults) > 0 {
		err = fmt.Errorf("the file is damaged: %s", strings.Join(faults, "; "))
	}
	return known(err)
}

// Fold brings the log of a database that nobody has open into its one file.
func Fold(ctx context.Context, path string) error {
	conn, err := connect(ctx, path)
	if err != nil {
		return err
	}
	w := newWriter(conn)
	return errors.Join(w.pragma(ctx, "wal_checkpoint(truncate)"), w.close())
}

func sealOf(ctx context.Context, w *writer) (*schema.Seal, error) {
	text, err := w.text(ctx, "select value from meta where name = '"+schema.Sealed+"'")
	if errors.Is(err, errNoRow) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	seal := schema.ParseSeal(text)
	return &seal, nil
}

// unsealed refuses a store that is no daemon's.
func unsealed(ctx context.Context, w *writer) error {
	if n, err := w.number(ctx, "select count(*) from sqlite_schema where type = 'table' and name = 'meta'"); err != nil || n == 0 {
		return err
	}
	seal, err := sealOf(ctx, w)
	if err == nil && seal != nil {
		err = &schema.SealedError{Seal: *seal}
	}
	return err
}

// Bounds of one transaction of a copy.
const (
	fillRows  = 5000
	fillBytes = 8 << 20
	// fillPages is how many pages of the WAL are copied into the database at once.
	fillPages = 4096
)

// Copy is a database that is filled.
type Copy struct {
	whole
	now func() time.Time
}

// OpenCopy opens or makes the database at path and brings it to this build's schema. Nobody else has it open: the caller
// holds the lock of the home, or the file is of his own making.
func OpenCopy(ctx context.Context, path string) (_ *Copy, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("cannot open the store %s: %w", path, known(err))
		}
	}()
	all, err := schema.Load(Migrations())
	if err != nil {
		return nil, err
	}
	if err := private(path); err != nil {
		return nil, err
	}
	conn, err := connect(ctx, path, "synchronous(full)", "cache_size(-32768)", fmt.Sprintf("wal_autocheckpoint(%d)", fillPages))
	if err != nil {
		return nil, err
	}
	c := &Copy{whole{w: newWriter(conn), types: map[string][]string{}}, time.Now}
	err = checkVersion(ctx, c.w)
	if err == nil {
		err = migrate(ctx, c.w, all)
	}
	if err != nil {
		return nil, errors.Join(err, c.w.close())
	}
	return c, nil
}

// Close closes the database.
func (c *Copy) Close() error { return c.w.close() }

// within runs fn in one transaction.
func (c *Copy) within(ctx context.Context, fn func() error) error {
	if err := c.w.begin(ctx); err != nil {
		return err
	}
	err := fn()
	if err == nil {
		err = c.w.commit(ctx)
	}
	if err != nil {
		_ = c.w.rollback(context.WithoutCancel(ctx)) // the first error counts; without a transaction there is nothing to take back
	}
	return err
}

const saveMeta = "insert into meta (name, value) values (?, ?) on conflict (name) do update set value = excluded.value"

// Prepare seals the database and takes what an interrupted copy has left.
func (c *Copy) Prepare(ctx context.Context, seal schema.Seal) error {
	tables, err := c.Tables(ctx)
	if err != nil {
		return err
	}
	return c.within(ctx, func() error {
		was, err := c.Seal(ctx)
		if err != nil {
			return err
		}
		rest := was != nil && was.Kind != schema.Backup
		for _, t := range tables {
			name := quoted([]string{t.Name})
			switch {
			case t.Name == "meta" || transfer.Held(t.Name):
				continue
			case rest:
				if _, err := c.w.exec(ctx, "delete from "+name); err != nil {
					return err
				}
				continue
			}
			if n, err := c.w.number(ctx, "select exists (select 1 from "+name+")"); err != nil || n != 0 {
				return errors.Join(err, transfer.ErrNotEmpty)
			}
		}
		if _, err := c.w.exec(ctx, "delete from meta where name not in ('generation', 'schema')"); err != nil {
			return err
		}
		_, err = c.w.exec(ctx, saveMeta, schema.Sealed, seal.Text())
		return err
	})
}

// Fill writes rows in transactions of bounded size.
func (c *Copy) Fill(ctx context.Context, table transfer.Table, rows func(func([]any) error) error) (err error) {
	text := "insert into " + quoted([]string{table.Name}) + " (" + quoted(table.Columns) + ") values (?" + strings.Repeat(", ?", len(table.Columns)-1) + ")"
	types, args := c.types[table.Name], make([]any, len(table.Columns))
	if len(types) != len(table.Columns) {
		return fmt.Errorf("the columns of %s are not known", table.Name)
	}
	if err := c.w.begin(ctx); err != nil {
		return err
	}
	defer func() {
		if err == nil {
			err = c.w.commit(ctx)
		}
		if err != nil {
			_ = c.w.rollback(context.WithoutCancel(ctx)) // the first error counts
		}
	}()
	n, size := 0, 0
	return rows(func(values []any) error {
		for i, v := range values {
			args[i] = v
			switch v := v.(type) {
			case string:
				size += len(v)
				if types[i] == "BLOB" {
					args[i] = []byte(v)
				}
			case []byte:
				size += len(v)
				switch {
				case types[i] == "TEXT":
					args[i] = string(v)
				case v == nil: // how the driver gives no bytes at all, and how it takes null
					args[i] = []byte{}
				}
			}
		}
		if _, err := c.w.exec(ctx, text, args...); err != nil {
			return err
		}
		if n++; n < fillRows && size < fillBytes {
			return nil
		}
		n, size = 0, 0
		if err := c.w.commit(ctx); err != nil {
			return err
		}
		return c.w.begin(ctx)
	})
}

// Finish ends the work on the database.
func (c *Copy) Finish(ctx context.Context, f transfer.Finish) error {
	err := c.within(ctx, func() error {
		if f.Seal != nil {
			_, err := c.w.exec(ctx, saveMeta, schema.Sealed, f.Seal.Text())
			return err
		}
		var b [16]byte
		rand.Read(b[:])
		if _, err := c.w.exec(ctx, saveMeta, "generation", hex.EncodeToString(b[:])); err != nil {
			return err
		}
		if _, err := c.w.exec(ctx, "delete from meta where name = ?", schema.Sealed); err != nil {
			return err
		}
		if _, err := c.w.exec(ctx, strings.Replace(transfer.EndKernels, "$1", "?", 1), f.Reason); err != nil {
			return err
		}
		epoch, err := c.Epoch(ctx)
		if err != nil {
			return err
		}
		_, err = c.w.exec(ctx, `insert into node (id, epoch, started_at) values ('', ?, ?) on conflict (id) do update set epoch = excluded.epoch`,
			int64(max(epoch, f.Epoch)+1), c.now().UnixMicro())
		return err
	})
	if err != nil {
		return err
	}
	if err := c.w.pragma(ctx, "wal_checkpoint(truncate)"); err != nil {
		return err
	}
	if f.Seal != nil { // a backup is one file, which may lie where nothing can be written
		return c.w.pragma(ctx, "journal_mode = delete")
	}
	return nil
}
