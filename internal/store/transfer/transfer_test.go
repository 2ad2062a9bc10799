package transfer_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"soma/internal/neuron"
	"soma/internal/store/postgres"
	"soma/internal/store/postgres/postgrestest"
	"soma/internal/store/schema"
	"soma/internal/store/sqlite"
	"soma/internal/store/transfer"
)

func TestMain(m *testing.M) { os.Exit(postgrestest.Main(m)) }

var seal = schema.Seal{Kind: schema.Copying, From: "a test", At: time.Unix(0, 0).UTC()}

// opened is a store that is read or filled, and closed.
type opened interface {
	transfer.Target
	Close() error
}

func lite(t *testing.T, path string) opened {
	t.Helper()
	c, err := sqlite.OpenCopy(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func shared(t *testing.T, dsn string) opened {
	t.Helper()
	c, err := postgres.OpenCopy(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// strew fills every table of the schema with rows of its own making: values of all sizes, nulls where they are allowed, zero
// bytes where the other engine has bytes.
func strew(t *testing.T, path string, rows int) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	r := rand.New(rand.NewPCG(1, 2))
	var tables []string
	each(t, db, "select name from sqlite_schema where type = 'table' order by name", func(scan func(...any) error) error {
		var name string
		err := scan(&name)
		tables = append(tables, name)
		return err
	})
	texts := textColumns(t)
	for _, table := range tables {
		type column struct {
			name, kind string
			required   bool
		}
		var columns []column
		each(t, db, "select name, type, \"notnull\" or pk > 0 from pragma_table_info('"+table+"') order by cid", func(scan func(...any) error) error {
			var c column
			err := scan(&c.name, &c.kind, &c.required)
			columns = append(columns, c)
			return err
		})
		for i := range rows {
			var args []any
			for _, c := range columns {
				switch {
				case table == "neuron" && c.name == "key" || table == "turn" && c.name == "pos":
					args = append(args, int64(i+1))
				case !c.required && i%3 == 0:
					args = append(args, nil)
				case c.kind == "INTEGER":
					args = append(args, int64(i)-r.Int64N(2)*int64(i)*2+int64(r.Uint32())<<20)
				case c.kind == "TEXT" && texts[table+"."+c.name]:
					args = append(args, fmt.Sprintf("%s-%d-é", c.name, i))
				case c.kind == "TEXT":
					args = append(args, fmt.Sprintf("%s \x00 %d", c.name, i))
				default:
					b := make([]byte, 16)
					if !slices.Contains([]string{"id", "delivery_id", "branch", "content", "call"}, c.name) { // no keys
						b = make([]byte, r.IntN(100)*r.IntN(100))
					}
					for j := range b {
						b[j] = byte(r.Uint32())
					}
					args = append(args, b)
				}
			}
			if table == "meta" {
				args = []any{fmt.Sprintf("row-%d", i), "x"}
			}
			if _, err := db.Exec("insert into "+table+" values (?"+strings.Repeat(", ?", len(args)-1)+")", args...); err != nil {
				t.Fatalf("%s: %v", table, err)
			}
		}
	}
}

func each(t *testing.T, db *sql.DB, query string, row func(scan func(...any) error) error) {
	t.Helper()
	rows, err := db.Query(query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			t.Fatal(err)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}

var (
	tableLine = regexp.MustCompile(`(?m)^create table (\w+) \(`)
	textLine  = regexp.MustCompile(`^\t(\w+)\s+text collate`)
)

func migrations(t *testing.T, files fs.FS) string {
	t.Helper()
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	var all []byte
	for _, name := range names {
		b, err := fs.ReadFile(files, name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	return string(all)
}

// textColumns are the columns that PostgreSQL keeps as text, table.column.
func textColumns(t *testing.T) map[string]bool {
	t.Helper()
	out, table := map[string]bool{}, ""
	for line := range strings.Lines(migrations(t, postgres.Migrations())) {
		if m := tableLine.FindStringSubmatch(line); m != nil {
			table = m[1]
		}
		if m := textLine.FindStringSubmatch(line); m != nil {
			out[table+"."+m[1]] = true
		}
	}
	return out
}

// made returns a finished store of the given number of rows in each table.
func made(t *testing.T, rows int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "soma.db")
	c := lite(t, path)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	strew(t, path, rows)
	return path
}

func snapshot(t *testing.T, path string) *sqlite.Snapshot {
	t.Helper()
	s, err := sqlite.OpenSnapshot(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// Issue 3 item 3: rows of every table go from SQLite to PostgreSQL and back and are the same, whatever is in them. No table
// that a migration makes is left out but those that say who holds a store.
// N-35
func TestThereAndBack(t *testing.T) {
	path := made(t, 40)
	from := snapshot(t, path)
	want, err := transfer.Sums(t.Context(), from)
	if err != nil {
		t.Fatal(err)
	}
	for engine, files := range map[string]fs.FS{"sqlite": sqlite.Migrations(), "postgres": postgres.Migrations()} {
		for _, m := range tableLine.FindAllStringSubmatch(migrations(t, files), -1) {
			if !transfer.Held(m[1]) && !slices.ContainsFunc(want, func(r transfer.TableReport) bool { return r.Name == m[1] }) {
				t.Errorf("%s: table %s is not copied", engine, m[1])
			}
		}
	}
	for _, w := range want {
		if w.Rows != 40 {
			t.Errorf("table %s: %d rows", w.Name, w.Rows)
		}
	}
	dsn := postgrestest.Database(t)
	to := shared(t, dsn)
	var told []transfer.Progress
	r, err := transfer.Copy(t.Context(), from, to, transfer.Options{Seal: seal, Progress: func(p transfer.Progress) { told = append(told, p) }})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(r.Tables, want) {
		t.Errorf("the report is %+v", r.Tables)
	}
	if last := told[len(told)-1]; last.Done != len(want) || last.Rows != r.Rows || last.Rows != int64(40*len(want)) {
		t.Errorf("the last word on the progress is %+v", last)
	}
	if err := to.Finish(t.Context(), transfer.Finish{Reason: "moved", Epoch: r.Epoch}); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}

	middle, err := postgres.OpenSnapshot(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer middle.Close()
	back := filepath.Join(t.TempDir(), "back.db")
	again := lite(t, back)
	r2, err := transfer.Copy(t.Context(), middle, again, transfer.Options{Seal: seal})
	if err != nil {
		t.Fatal(err)
	}
	for i, got := range r2.Tables {
		if got != want[i] && got.Name != "kernel" { // live ones were marked
			t.Errorf("after both ways table %s is %+v, want %+v", got.Name, got, want[i])
		}
	}
	if r2.Epoch <= r.Epoch {
		t.Errorf("the epochs are %d and %d", r.Epoch, r2.Epoch)
	}
	if n, err := middle.Number(t.Context(), "select count(*) from kernel where state = 'ending' and node = '' and os_pid > 0"); err != nil || n != 40 {
		t.Errorf("%d python kernels are marked (%v)", n, err)
	}
}

// The numbers that PostgreSQL gives go on after those that came along.
func TestNumbersGoOn(t *testing.T) {
	dsn := postgrestest.Database(t)
	to := shared(t, dsn)
	if _, err := transfer.Copy(t.Context(), snapshot(t, made(t, 7)), to, transfer.Options{Seal: seal}); err != nil {
		t.Fatal(err)
	}
	if err := to.Finish(t.Context(), transfer.Finish{Epoch: 3}); err != nil {
		t.Fatal(err)
	}
	s, err := postgres.Open(t.Context(), dsn, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	first, last, err := s.ReserveKeys(t.Context())
	if err != nil || first != 8 || last <= first {
		t.Errorf("neuron keys go on with %d to %d (%v)", first, last, err)
	}
	pos, err := to.Number(t.Context(), `insert into turn (neuron, seq, out_first) values (1, 1, 1) returning pos`)
	if err != nil || pos != 8 {
		t.Errorf("turns go on at %d (%v)", pos, err)
	}
}

// A copy that ended before its end leaves a store that says so: no daemon opens it, and the next copy takes it over.
func TestInterrupted(t *testing.T) {
	from := made(t, 5)
	for name, target := range map[string]func(t *testing.T) (open func() opened, daemon func() error){
		"sqlite": func(t *testing.T) (func() opened, func() error) {
			path := filepath.Join(t.TempDir(), "soma.db")
			return func() opened { return lite(t, path) }, func() error {
				s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
				if err == nil {
					err = s.Close()
				}
				return err
			}
		},
		"postgres": func(t *testing.T) (func() opened, func() error) {
			dsn := postgrestest.Database(t)
			return func() opened { return shared(t, dsn) }, func() error {
				s, err := postgres.Open(t.Context(), dsn, postgres.Options{})
				if err == nil {
					err = s.Close()
				}
				return err
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			open, daemon := target(t)
			to := open()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			_, err := transfer.Copy(ctx, snapshot(t, from), to, transfer.Options{Seal: seal, Progress: func(p transfer.Progress) {
				if p.Table == "message" {
					cancel()
				}
			}})
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("the copy ended with %v", err)
			}
			_ = to.Close()
			var sealed *schema.SealedError
			if err := daemon(); !errors.As(err, &sealed) || !strings.Contains(err.Error(), "run soma store copy again") {
				t.Fatalf("a daemon gets %v", err)
			}
			to = open()
			r, err := transfer.Copy(t.Context(), snapshot(t, from), to, transfer.Options{Seal: seal})
			if err != nil {
				t.Fatal(err)
			}
			if err := daemon(); !errors.As(err, &sealed) {
				t.Errorf("before the end a daemon gets %v", err)
			}
			if err := to.Finish(t.Context(), transfer.Finish{Epoch: r.Epoch}); err != nil {
				t.Fatal(err)
			}
			if err := daemon(); err != nil {
				t.Errorf("in the end a daemon gets %v", err)
			}
			if _, err := transfer.Copy(t.Context(), snapshot(t, from), to, transfer.Options{Seal: seal}); !errors.Is(err, transfer.ErrNotEmpty) {
				t.Errorf("a second copy ends with %v", err)
			}
		})
	}
}

// A database that a node uses takes no copy, also while it is empty.
func TestNodeUsesTheTarget(t *testing.T) {
	dsn := postgrestest.Database(t)
	s, err := postgres.Open(t.Context(), dsn, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	fence, err := s.Claim(t.Context(), "n1")
	if err != nil {
		t.Fatal(err)
	}
	to, from := shared(t, dsn), snapshot(t, made(t, 1))
	var alive *postgres.AliveError
	if _, err := transfer.Copy(t.Context(), from, to, transfer.Options{Seal: seal}); !errors.As(err, &alive) || alive.Node != "n1" {
		t.Errorf("the copy ended with %v", err)
	}
	if err := s.Leave(t.Context(), fence); err != nil {
		t.Fatal(err)
	}
	if _, err := transfer.Copy(t.Context(), from, to, transfer.Options{Seal: seal}); err != nil {
		t.Error(err)
	}
	// A node that has opened the database before the copy begins no life during it.
	var sealed *schema.SealedError
	if _, err := s.Claim(t.Context(), "n1"); !errors.As(err, &sealed) {
		t.Errorf("during the copy a node gets %v", err)
	}
	if err := to.Finish(t.Context(), transfer.Finish{}); err != nil {
		t.Errorf("the end of the copy is %v", err)
	}
	if _, err := s.Claim(t.Context(), "n1"); err != nil {
		t.Errorf("after the copy a node gets %v", err)
	}
}

// faulty changes one value on its way.
type faulty struct {
	transfer.Source
	table string
}

func (f faulty) Rows(ctx context.Context, table transfer.Table, row func([]any) error) error {
	return f.Source.Rows(ctx, table, func(values []any) error {
		if table.Name == f.table {
			for i, v := range values {
				if b, ok := v.([]byte); ok && len(b) > 0 {
					values[i] = bytes.Repeat([]byte{b[0] ^ 1}, len(b))
					break
				}
			}
		}
		return row(values)
	})
}

// twisted is a target that does not keep what it is given.
type twisted struct {
	transfer.Target
	table string
}

func (w twisted) Rows(ctx context.Context, table transfer.Table, row func([]any) error) error {
	return faulty{w.Target, w.table}.Rows(ctx, table, row)
}

// What does not arrive as it was is noticed, and two stores that differ in one value have different sums.
func TestDifferencesAreSeen(t *testing.T) {
	path := made(t, 3)
	from := snapshot(t, path)
	to := lite(t, filepath.Join(t.TempDir(), "to.db"))
	_, err := transfer.Copy(t.Context(), from, twisted{to, "message"}, transfer.Options{Seal: seal})
	var different *transfer.DifferentError
	if !errors.As(err, &different) || different.Table != "message" {
		t.Fatalf("the copy ended with %v", err)
	}
	a, err := transfer.Sums(t.Context(), from)
	if err != nil {
		t.Fatal(err)
	}
	b, err := transfer.Sums(t.Context(), faulty{from, "turn"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range a {
		if (a[i] != b[i]) != (a[i].Name == "turn") {
			t.Errorf("table %s: %+v and %+v", a[i].Name, a[i], b[i])
		}
	}
}

// narrow has one column less.
type narrow struct{ transfer.Source }

func (n narrow) Tables(ctx context.Context) ([]transfer.Table, error) {
	all, err := n.Source.Tables(ctx)
	all[0].Columns = all[0].Columns[1:]
	return all, err
}

func TestOtherSchemas(t *testing.T) {
	to := lite(t, filepath.Join(t.TempDir(), "to.db"))
	var mismatch *transfer.MismatchError
	if _, err := transfer.Copy(t.Context(), narrow{snapshot(t, made(t, 1))}, to, transfer.Options{Seal: seal}); !errors.As(err, &mismatch) {
		t.Errorf("the copy ended with %v", err)
	}
}

// A snapshot is of one moment, whatever is committed while it is read.
func TestSnapshotIsOneMoment(t *testing.T) {
	path := filepath.Join(t.TempDir(), "soma.db")
	store, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	fence, err := store.Claim(t.Context(), "local")
	if err != nil {
		t.Fatal(err)
	}
	write := func(n int) {
		op := put(fmt.Sprint("k", n))
		if err := store.Commit(t.Context(), fence, []*neuron.Record{{Ops: []neuron.Op{op}}}); err != nil {
			t.Fatal(err)
		}
	}
	write(1)
	s := snapshot(t, path)
	write(2)
	if n, err := s.Number(t.Context(), "select count(*) from meta where name like 'k%'"); err != nil || n != 1 {
		t.Errorf("the snapshot has %d rows (%v)", n, err)
	}
	to := lite(t, filepath.Join(t.TempDir(), "to.db"))
	if _, err := transfer.Copy(t.Context(), s, to, transfer.Options{Seal: seal}); err != nil {
		t.Fatal(err)
	}
	if n, err := to.Number(t.Context(), "select count(*) from meta where name like 'k%'"); err != nil || n != 1 {
		t.Errorf("the copy has %d rows (%v)", n, err)
	}
}

// put is a row of meta.
type put string

func (put) SQL() string   { return "insert into meta (name, value) values (?, '')" }
func (p put) Args() []any { return []any{string(p)} }
