package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"soma/internal/neuron"
)

func dbPath(t testing.TB) string { return filepath.Join(t.TempDir(), "soma.db") }

func mustOpen(t testing.TB, path string, o Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// N-35: what is promised of a commit holds at this level only.
func TestDurability(t *testing.T) {
	s := mustOpen(t, dbPath(t), Options{})
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "wal_autocheckpoint": "0"} {
		for name, w := range map[string]*writer{"writer": s.w, "checkpointer": s.checkpoint.aside} {
			v, err := w.value(t.Context(), "pragma "+pragma)
			if got := fmt.Sprint(v); err != nil || got != want {
				t.Errorf("%s of the %s: %q, %v, want %s", pragma, name, got, err, want)
			}
		}
	}
}

func TestModes(t *testing.T) {
	path := dbPath(t)
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, path, Options{})
	if _, err := s.Claim(t.Context(), "node"); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		info, err := os.Stat(path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("soma.db%s has mode %o", suffix, info.Mode().Perm())
		}
	}
}

func TestPathWithMarks(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a ?b#c%20d&e=f")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "soma.db")
	s := mustOpen(t, path, Options{})
	if _, err := s.Claim(t.Context(), "node"); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path + "-wal"); err != nil || info.Size() == 0 {
		t.Errorf("the database lies elsewhere: %v", err)
	}
}

func TestGenerationStays(t *testing.T) {
	path := dbPath(t)
	s := mustOpen(t, path, Options{})
	first := s.Generation()
	if len(first) != 32 {
		t.Errorf("generation %q", first)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := mustOpen(t, path, Options{}).Generation(); got != first {
		t.Errorf("generation %q after %q", got, first)
	}
	if got := mustOpen(t, dbPath(t), Options{}).Generation(); got == first {
		t.Error("two databases have one generation")
	}
}

func TestForeignSchemas(t *testing.T) {
	newer := dbPath(t)
	s := mustOpen(t, newer, Options{Migrations: withSuite(t)})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	other, nameless := dbPath(t), dbPath(t)
	for path, script := range map[string]string{
		other:    "create table diary (day text, entry text)",
		nameless: "create table meta (name text, value text); insert into meta values ('schema', 'mine')",
	} {
		conn, err := connect(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		w := newWriter(conn)
		if err := errors.Join(w.script(t.Context(), script), w.close()); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		make func(path string) error
		want string
	}{
		"newer":        {func(path string) error { return copyFile(newer, path) }, strconv.Itoa(len(withSuite(t).(fstest.MapFS)))},
		"other tables": {func(path string) error { return copyFile(other, path) }, "of another program"},
		"other meta":   {func(path string) error { return copyFile(nameless, path) }, "mine"},
		"no database": {func(path string) error {
			return os.WriteFile(path, []byte(strings.Repeat("this is a diary, not a database\n", 200)), 0o600)
		}, "of another program"},
	} {
		t.Run(name, func(t *testing.T) {
			path := dbPath(t)
			if err := c.make(path); err != nil {
				t.Fatal(err)
			}
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			_, err = Open(t.Context(), path, Options{})
			var schema *SchemaError
			if !errors.As(err, &schema) || schema.Found != c.want {
				t.Fatalf("open: %v, want schema %s", err, c.want)
			}
			after, err := os.ReadFile(path)
			if err != nil || string(after) != string(before) {
				t.Errorf("the refused file was changed (%v)", err)
			}
		})
	}
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o600)
}

// A migration is whole or not there at all.
func TestFailedMigration(t *testing.T) {
	path := dbPath(t)
	files := withSuite(t).(fstest.MapFS)
	bad := fmt.Sprintf("%04d_bad.sql", len(files)+1)
	files[bad] = &fstest.MapFile{Data: []byte("create table half (x integer); insert into nowhere values (1);")}
	if _, err := Open(t.Context(), path, Options{Migrations: files}); err == nil || !strings.Contains(err.Error(), bad) {
		t.Fatalf("open: %v", err)
	}
	s := mustOpen(t, path, Options{Migrations: withSuite(t)})
	n, err := s.w.number(t.Context(), "select count(*) from sqlite_schema where name = 'half'")
	if err != nil || n != 0 {
		t.Errorf("%d tables of the failed migration, %v", n, err)
	}
	if v, err := s.w.text(t.Context(), "select value from meta where name = 'schema'"); err != nil || v != strconv.Itoa(len(files)-1) {
		t.Errorf("schema %s, %v", v, err)
	}
}

func TestMigrationNumbers(t *testing.T) {
	for _, name := range []string{"0002_x.sql", "x.sql", "0000_x.sql"} {
		files := fstest.MapFS{name: {Data: []byte("select 1")}}
		if _, err := Open(t.Context(), dbPath(t), Options{Migrations: files}); err == nil || !strings.Contains(err.Error(), "want number 0001") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if names, err := fs.Glob(Migrations(), "*.sql"); err != nil || len(names) == 0 {
		t.Errorf("migrations %v, %v", names, err)
	}
}

func TestOlder(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{{"3.51.2", "3.51.3", true}, {"3.51.3", "3.51.3", false}, {"3.52", "3.51.3", false}, {"3.9.9", "3.51.3", true}, {"4", "3.51.3", false}, {"", "3.51.3", true}} {
		if got := older(c.a, c.b); got != c.want {
			t.Errorf("older(%q, %q) = %v", c.a, c.b, got)
		}
	}
}

func TestSequencesAreComplete(t *testing.T) {
	whole := neuron.Sequence{Name: "n", Last: "select 1", Save: "select 1"}
	for _, list := range [][]neuron.Sequence{{whole, whole}, {{Name: "n", Save: "x"}}, {{Last: "x", Save: "y"}}} {
		if s, err := Open(t.Context(), dbPath(t), Options{Sequences: list}); err == nil {
			_ = s.Close()
			t.Errorf("%+v was accepted", list)
		}
	}
}

func TestClosed(t *testing.T) {
	s := mustOpen(t, dbPath(t), Options{})
	f, err := s.Claim(t.Context(), "node")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(t.Context(), f, nil); err == nil {
		t.Error("a closed store commits")
	}
	if _, _, err := s.ReserveKeys(t.Context()); err == nil {
		t.Error("a closed store reads")
	}
}

// A first read within a snapshot needs no connection but its own.
func TestSnapshotsTakeOneConnection(t *testing.T) {
	s := mustOpen(t, dbPath(t), Options{Readers: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	id := neuron.ID{Owner: "me", Kind: "test", Key: "a"}
	if _, err := s.Neuron(ctx, id); err != nil {
		t.Error(err)
	}
	for _, feed := range []neuron.Feed{neuron.In, neuron.Out} {
		if _, err := s.Entries(ctx, id, feed, 0, 10); err != nil {
			t.Error(err)
		}
	}
}
