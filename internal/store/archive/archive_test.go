package archive_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"soma/internal/config"
	"soma/internal/neuron"
	"soma/internal/store/archive"
	"soma/internal/store/postgres"
	"soma/internal/store/postgres/postgrestest"
	"soma/internal/store/schema"
	"soma/internal/store/sqlite"
	"soma/internal/store/transfer"
)

func TestMain(m *testing.M) { os.Exit(postgrestest.Main(m)) }

var options = archive.Options{Now: time.Now}

// sqlOp is one statement.
type sqlOp struct {
	text string
	args []any
}

func (o sqlOp) SQL() string { return o.text }
func (o sqlOp) Args() []any { return o.args }

// writer commits pairs of rows that are only ever there together.
type writer struct {
	store interface {
		neuron.Store
		Close() error
	}
	fence neuron.Fence
	done  atomic.Int64 // pairs committed
}

func (w *writer) put(ctx context.Context, n int64) error {
	at := time.Now().UnixMicro()
	err := w.store.Commit(ctx, w.fence, []*neuron.Record{{Ops: []neuron.Op{
		sqlOp{`insert into branch (id, session, name, created_at) values (?, ?, ?, ?)`, []any{[]byte(fmt.Sprintf("%016d", n)), "s", "b", at}},
		sqlOp{`insert into content (id, size, bytes) values (?, ?, ?)`, []any{[]byte(fmt.Sprintf("%016d", n)), int64(1), bytes.Repeat([]byte{byte(n)}, 200)}},
	}}})
	if err == nil {
		w.done.Add(1)
	}
	return err
}

// home makes a home with a store in which n pairs are.
func home(t *testing.T, n int64) (config.Home, *writer) {
	t.Helper()
	h, err := config.HomeAt(filepath.Join(t.TempDir(), "home"))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Create(); err != nil {
		t.Fatal(err)
	}
	s, err := sqlite.Open(t.Context(), h.Database(), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	w := &writer{store: s}
	if w.fence, err = s.Claim(t.Context(), "local"); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := w.put(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	return h, w
}

func number(t *testing.T, path, query string) (n int64) {
	t.Helper()
	s, err := sqlite.OpenSnapshot(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if n, err = s.Number(t.Context(), query); err != nil {
		t.Fatal(err)
	}
	return n
}

func generation(t *testing.T, path string) string {
	t.Helper()
	s, err := sqlite.OpenSnapshot(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	g, err := s.Generation(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return g
}

const pairs = `select count(*) from branch b join content c on c.id = b.id`

// whole checks that a store has all pairs up to one, and no half ones, and returns their number.
func whole(t *testing.T, path string) int64 {
	t.Helper()
	n := number(t, path, pairs)
	if b, c := number(t, path, `select count(*) from branch`), number(t, path, `select count(*) from content`); b != n || c != n {
		t.Errorf("%s has %d and %d halves of %d pairs", path, b, c, n)
	}
	last := number(t, path, `select coalesce(max(cast(cast(id as text) as integer)), -1) from branch`)
	if n > 0 && last != n-1 {
		t.Errorf("%s has %d pairs, the last is %d", path, n, last)
	}
	return n
}

// Backups that are made while somebody writes without a pause are each of one moment: no half commit, none that was
// acknowledged before is missing, and each restores to a store that a daemon opens.
func TestBackupWhileWriting(t *testing.T) {
	for engine, open := range map[string]func(t *testing.T) (archive.Place, *writer){
		"sqlite": func(t *testing.T) (archive.Place, *writer) {
			h, w := home(t, 10)
			return archive.Place{Home: h.Dir()}, w
		},
		"postgres": func(t *testing.T) (archive.Place, *writer) {
			dsn := postgrestest.Database(t)
			s, err := postgres.Open(t.Context(), dsn, postgres.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			w := &writer{store: s}
			if w.fence, err = s.Claim(t.Context(), "n1"); err != nil {
				t.Fatal(err)
			}
			taken, err := s.Take(t.Context(), w.fence, neuron.AllPlaces())
			if err != nil {
				t.Fatal(err)
			}
			epochs := neuron.Epochs{}
			for p, got := range taken {
				epochs[p] = got.Epoch
			}
			w.fence.Places = &epochs
			for i := range int64(10) {
				if err := w.put(t.Context(), i); err != nil {
					t.Fatal(err)
				}
			}
			return archive.Place{Database: config.Database(dsn)}, w
		},
	} {
		t.Run(engine, func(t *testing.T) {
			from, w := open(t)
			stop := make(chan struct{})
			var writing sync.WaitGroup
			writing.Go(func() {
				for n := w.done.Load(); ; n++ {
					select {
					case <-stop:
						return
					default:
					}
					if err := w.put(t.Context(), n); err != nil {
						t.Error(err)
						return
					}
				}
			})
			dir := t.TempDir()
			var last int64
			for i := range 4 {
				file := filepath.Join(dir, fmt.Sprint("backup", i))
				before := w.done.Load()
				r, err := archive.Backup(t.Context(), from, file, options)
				if err != nil {
					t.Fatal(err)
				}
				after := w.done.Load()
				info, err := os.Stat(file)
				if err != nil || info.Mode() != 0o600 {
					t.Errorf("%v has mode %v (%v)", file, info, err)
				}
				n := whole(t, file)
				if n < before || n > after+1 || r.Rows < 2*n {
					t.Errorf("a backup between %d and %d pairs has %d, the report says %d rows", before, after, n, r.Rows)
				}
				h, err := config.HomeAt(filepath.Join(dir, fmt.Sprint("home", i)))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := archive.Restore(t.Context(), file, archive.Place{Home: h.Dir()}, false, options); err != nil {
					t.Fatal(err)
				}
				if got := whole(t, h.Database()); got != n {
					t.Errorf("%d pairs are restored of %d", got, n)
				}
				opens(t, h.Database())
				last = n
			}
			close(stop)
			writing.Wait()
			if last < 10 {
				t.Errorf("the last backup has %d pairs", last)
			}
			left, err := filepath.Glob(filepath.Join(dir, "*.part*"))
			if err != nil || len(left) > 0 {
				t.Errorf("left behind: %v (%v)", left, err)
			}
		})
	}
}

func opens(t *testing.T, path string) {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Error(err)
		return
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A backup overwrites nothing, is no store for a daemon, and takes over what a killed one has left.
func TestBackupFiles(t *testing.T) {
	h, _ := home(t, 3)
	from := archive.Place{Home: h.Dir()}
	dir := t.TempDir()
	file := filepath.Join(dir, "b")
	for _, name := range []string{file + ".part", file + ".part-wal", file + ".part-journal"} {
		if err := os.WriteFile(name, []byte("the rest of a killed backup"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := archive.Backup(t.Context(), from, file, options); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder has %v (%v)", entries, err)
	}
	was, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var exists *archive.ExistsError
	if _, err := archive.Backup(t.Context(), from, file, options); !errors.As(err, &exists) {
		t.Errorf("a second backup ends with %v", err)
	}
	if now, err := os.ReadFile(file); err != nil || !bytes.Equal(was, now) {
		t.Errorf("the first backup was changed (%v)", err)
	}
	var sealed *schema.SealedError
	if _, err := sqlite.Open(t.Context(), file, sqlite.Options{}); !errors.As(err, &sealed) || !strings.Contains(err.Error(), "soma restore makes a store of it") {
		t.Errorf("a daemon gets %v", err)
	}
	if _, err := archive.Backup(t.Context(), archive.Place{File: file}, file+"2", options); !errors.As(err, &sealed) {
		t.Errorf("a backup of a backup ends with %v", err)
	}
	if _, err := archive.Copy(t.Context(), archive.Place{File: file}, archive.Place{Home: filepath.Join(dir, "h")}, options); !errors.As(err, &sealed) {
		t.Errorf("a copy of a backup ends with %v", err)
	}
}

// What stands in for a backup and is none is refused, and the home stays as it was.
func TestWrongFiles(t *testing.T) {
	h, w := home(t, 300)
	dir := t.TempDir()
	good := filepath.Join(dir, "good")
	if _, err := archive.Backup(t.Context(), archive.Place{Home: h.Dir()}, good, options); err != nil {
		t.Fatal(err)
	}
	if err := w.store.Close(); err != nil {
		t.Fatal(err)
	}
	bytesOf, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	change := func(statement string) func(path string) error {
		return func(path string) error {
			db, err := sql.Open("sqlite", path)
			if err != nil {
				return err
			}
			_, err = db.Exec(statement)
			return errors.Join(err, db.Close())
		}
	}
	for name, c := range map[string]struct {
		make func(path string) error
		want string
	}{
		"text":    {func(p string) error { return os.WriteFile(p, []byte(strings.Repeat("no database ", 1000)), 0o600) }, "of another program"},
		"empty":   {func(p string) error { return os.WriteFile(p, nil, 0o600) }, "of another program"},
		"folder":  {func(p string) error { return os.Mkdir(p, 0o700) }, "of another program"},
		"foreign": {change("create table t (x)"), "of another program"},
		"newer": {func(p string) error {
			return errors.Join(os.WriteFile(p, bytesOf, 0o600), change("update meta set value = '99' where name = 'schema'")(p))
		}, "schema 99"},
		"cut off": {func(p string) error { return os.WriteFile(p, bytesOf[:len(bytesOf)/2], 0o600) }, "damaged"},
		"unfinished": {func(p string) error {
			return errors.Join(os.WriteFile(p, bytesOf, 0o600), change(`update meta set value = '{"kind":"backing up"}' where name = 'sealed'`)(p))
		}, "did not end"},
		"a store": {func(p string) error {
			return errors.Join(os.WriteFile(p, bytesOf, 0o600), change(`delete from meta where name = 'sealed'`)(p))
		}, "no backup but a store"},
		"overwritten": {func(p string) error {
			b := slices.Clone(bytesOf)
			for i := len(b) / 2; i < len(b)/2+8192; i++ {
				b[i] ^= 0x55
			}
			return os.WriteFile(p, b, 0o600)
		}, "damaged"},
		"missing": {func(string) error { return nil }, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "file")
			if err := c.make(path); err != nil {
				t.Fatal(err)
			}
			before := generation(t, h.Database())
			if _, err := archive.Restore(t.Context(), path, archive.Place{Home: h.Dir()}, true, options); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("restore ends with %v, want %q", err, c.want)
			}
			if generation(t, h.Database()) != before || whole(t, h.Database()) != 300 {
				t.Error("the home was changed")
			}
			if left, err := filepath.Glob(h.Database() + ".re*"); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v (%v)", left, err)
			}
		})
	}
}

// A home with a store needs to be told, keeps the old store whole, and its followers and python kernels are those of no store
// any more.
func TestReplace(t *testing.T) {
	h, w := home(t, 5)
	file := filepath.Join(t.TempDir(), "b")
	at := archive.Place{Home: h.Dir()}
	if _, err := archive.Backup(t.Context(), at, file, options); err != nil {
		t.Fatal(err)
	}
	for n := int64(5); n < 9; n++ {
		if err := w.put(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	old := w.fence.Epoch
	if w.fence, _ = w.store.Claim(t.Context(), "local"); w.fence.Epoch != old+1 {
		t.Fatalf("epochs %d and %d", old, w.fence.Epoch)
	}
	if err := w.store.Close(); err != nil {
		t.Fatal(err)
	}
	kernel := filepath.Join(h.Run(), "k1")
	if err := os.Mkdir(kernel, 0o700); err != nil {
		t.Fatal(err)
	}
	was := generation(t, h.Database())
	var notEmpty *archive.NotEmptyError
	if _, err := archive.Restore(t.Context(), file, at, false, options); !errors.As(err, &notEmpty) {
		t.Errorf("without a word of it restore ends with %v", err)
	}
	r, err := archive.Restore(t.Context(), file, at, true, options)
	if err != nil {
		t.Fatal(err)
	}
	if whole(t, h.Database()) != 5 || whole(t, r.Kept) != 9 || r.Replaced == nil {
		t.Errorf("the report is %+v", r)
	}
	if generation(t, r.Kept) != was || generation(t, h.Database()) == was {
		t.Error("the generations are wrong")
	}
	if _, err := os.Stat(kernel); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the run directory of a python kernel: %v", err)
	}
	s, err := sqlite.Open(t.Context(), h.Database(), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	// The old daemon's life is fenced, and the new one is beyond it for whatever has met it.
	if err := s.Commit(t.Context(), w.fence, []*neuron.Record{{Ops: []neuron.Op{sqlOp{"delete from content", nil}}}}); !errors.Is(err, neuron.ErrFenced) {
		t.Errorf("the old life commits: %v", err)
	}
	next, err := s.Claim(t.Context(), "local")
	if err != nil || next.Epoch <= w.fence.Epoch {
		t.Errorf("the epochs are %d and %d (%v)", w.fence.Epoch, next.Epoch, err)
	}
}

// The store for whose sake one has backups: it cannot be read any more.
func TestReplaceDamaged(t *testing.T) {
	h, w := home(t, 5)
	file := filepath.Join(t.TempDir(), "b")
	at := archive.Place{Home: h.Dir()}
	if _, err := archive.Backup(t.Context(), at, file, options); err != nil {
		t.Fatal(err)
	}
	for n := int64(5); n < 9; n++ {
		if err := w.put(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	log, err := os.ReadFile(h.Database() + "-wal") // whole, and of a file that is gone
	if err != nil || len(log) == 0 {
		t.Fatalf("a log of %d bytes, %v", len(log), err)
	}
	if err := w.store.Close(); err != nil {
		t.Fatal(err)
	}
	for _, damage := range []string{"no database at all", ""} {
		if err := os.WriteFile(h.Database(), []byte(damage), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(h.Database()+"-wal", log, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Restore(t.Context(), file, at, true, options); err != nil {
			t.Fatal(err)
		}
		if whole(t, h.Database()) != 5 {
			t.Error("the pairs are not there")
		}
		opens(t, h.Database())
	}
}

// Nothing is done to a home while a daemon holds it, and a backup needs no leave.
func TestHeldHomes(t *testing.T) {
	h, _ := home(t, 1)
	at := archive.Place{Home: h.Dir()}
	lock, err := h.Lock()
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Release()
	file := filepath.Join(t.TempDir(), "b")
	if _, err := archive.Backup(t.Context(), at, file, options); err != nil {
		t.Error(err)
	}
	var locked *config.LockedError
	if _, err := archive.Restore(t.Context(), file, at, true, options); !errors.As(err, &locked) {
		t.Errorf("restore ends with %v", err)
	}
	empty := archive.Place{Home: filepath.Join(t.TempDir(), "h")}
	if _, err := archive.Copy(t.Context(), at, empty, options); !errors.As(err, &locked) {
		t.Errorf("a copy from it ends with %v", err)
	}
	if _, err := archive.Copy(t.Context(), empty, at, options); err == nil {
		t.Error("a copy into it is made")
	}
}

// A database that a node uses, or has used meanwhile, is not copied; backups are made of it all the same.
func TestNodesOfADatabase(t *testing.T) {
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
	from, dir := archive.Place{Database: config.Database(dsn)}, t.TempDir()
	var alive *postgres.AliveError
	if _, err := archive.Copy(t.Context(), from, archive.Place{Home: filepath.Join(dir, "a")}, options); !errors.As(err, &alive) {
		t.Errorf("a copy ends with %v", err)
	}
	if _, err := archive.Backup(t.Context(), from, filepath.Join(dir, "b"), options); err != nil {
		t.Error(err)
	}
	if err := s.Leave(t.Context(), fence); err != nil {
		t.Fatal(err)
	}
	meanwhile := options
	meanwhile.Progress = func(p transfer.Progress) {
		if p.Table == "turn" {
			if _, err := s.Claim(t.Context(), "n2"); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := archive.Copy(t.Context(), from, archive.Place{Home: filepath.Join(dir, "c")}, meanwhile); err == nil || !strings.Contains(err.Error(), "has used") {
		t.Errorf("a copy beside a new life ends with %v", err)
	}
	var sealed *schema.SealedError
	if _, err := sqlite.Open(t.Context(), filepath.Join(dir, "c", "soma.db"), sqlite.Options{}); !errors.As(err, &sealed) {
		t.Errorf("a daemon gets %v", err)
	}
}

// A backup of SQLite is restored into PostgreSQL.
func TestRestoreIntoDatabase(t *testing.T) {
	h, _ := home(t, 6)
	file := filepath.Join(t.TempDir(), "b")
	if _, err := archive.Backup(t.Context(), archive.Place{Home: h.Dir()}, file, options); err != nil {
		t.Fatal(err)
	}
	dsn := postgrestest.Database(t)
	to := archive.Place{Database: config.Database(dsn)}
	r, err := archive.Restore(t.Context(), file, to, false, options)
	if err != nil || r.Rows < 12 || r.At.IsZero() {
		t.Fatalf("%+v, %v", r, err)
	}
	s, err := postgres.OpenSnapshot(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if n, err := s.Number(t.Context(), pairs); err != nil || n != 6 {
		t.Errorf("%d pairs (%v)", n, err)
	}
	var notEmpty *archive.NotEmptyError
	if _, err := archive.Restore(t.Context(), file, to, true, options); !errors.As(err, &notEmpty) {
		t.Errorf("a second restore ends with %v", err)
	}
}

// No place shows a password, and none may stand in an argument.
func TestNamed(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"postgres://me@host/db":                  "postgres://me@host/db",
		dir:                                      "the home " + dir,
		filepath.Join(dir, "soma.db"):            "the home " + dir,
		filepath.Join(dir, "file"):               "the file " + filepath.Join(dir, "file"),
		filepath.Join(dir, "later"):              "the home " + filepath.Join(dir, "later"),
		filepath.Join(dir, "later.db"):           "the file " + filepath.Join(dir, "later.db"),
		"host=h dbname=d":                        "host=h dbname=d",
		" user = me host=/run/pg port=5432":      "user=me host=/run/pg port=5432",
		"host=/tmp/p-1 dbname=d sslmode=disable": "host=/tmp/p-1 dbname=d sslmode=disable",
		"postgresql://host/db":                   "postgresql://host/db",
		filepath.Join(dir, "host=h"):             "the home " + filepath.Join(dir, "host=h"),
		"host=h dbname=d password=secret":        "",
		"postgres://me:secret@host/db":           "",
		"postgres://host/db?password=se2":        "",
	} {
		p, err := archive.Named(text)
		if (err == nil) != (want != "") || err == nil && p.String() != want {
			t.Errorf("%s: %v, %v", text, p, err)
		}
		if err != nil && regexp.MustCompile("secret|se2").MatchString(err.Error()) {
			t.Errorf("the error shows it: %v", err)
		}
	}
}
