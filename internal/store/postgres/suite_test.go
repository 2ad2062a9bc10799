package postgres

import (
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"go.uber.org/goleak"

	"soma/internal/neuron"
	"soma/internal/store/postgres/postgrestest"
	"soma/internal/store/storetest"
)

// m runs the tests and then ends the server, before goroutines are counted.
type m struct{ *testing.M }

func (m m) Run() int { return postgrestest.Main(m.M) }

func TestMain(t *testing.M) { goleak.VerifyTestMain(m{t}) }

// withSuite is this build's migrations and one more with the suite's table.
func withSuite(t testing.TB) fs.FS {
	t.Helper()
	names, err := fs.Glob(Migrations(), "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	out := fstest.MapFS{fmt.Sprintf("%04d_suite.sql", len(names)+1): {Data: []byte(storetest.Schema)}}
	for _, name := range names {
		b, err := fs.ReadFile(Migrations(), name)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = &fstest.MapFile{Data: b}
	}
	return out
}

// where remembers the databases of stores, for those that are opened again.
var where sync.Map // *Store → DSN

func openAt(t testing.TB, dsn string, o Options) *Store {
	t.Helper()
	if o.Migrations == nil {
		o.Migrations = withSuite(t)
	}
	s, err := Open(t.Context(), dsn, o)
	if err != nil {
		t.Fatal(err)
	}
	where.Store(s, dsn)
	return s
}

// fresh opens a store on a database of its own; the test closes it.
func fresh(t testing.TB, o Options) *Store {
	t.Helper()
	s := openAt(t, postgrestest.Database(t), o)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func dsnOf(t testing.TB, s *Store) string {
	t.Helper()
	dsn, ok := where.Load(s)
	if !ok {
		t.Fatal("the store was not opened here")
	}
	return dsn.(string)
}

// force gives places to the node of f, whoever holds them: as if those had been silent for long.
func force(t testing.TB, s *Store, f neuron.Fence, places neuron.PlaceSet) neuron.Fence {
	t.Helper()
	exec(t, s, fmt.Sprintf("update node set beat = 0 where id <> '%s'", f.Node))
	taken, err := s.Take(t.Context(), f, places)
	if err != nil {
		t.Fatal(err)
	}
	if len(taken) != places.Len() {
		t.Fatalf("%d places taken, want %d", len(taken), places.Len())
	}
	now := *f.Places
	for p, how := range taken {
		now[p] = how.Epoch
	}
	return neuron.Fence{Node: f.Node, Epoch: f.Epoch, Places: &now}
}

// exec runs SQL beside the store.
func exec(t testing.TB, s *Store, text string) {
	t.Helper()
	err := s.control.use(t.Context(), func(c *session) error {
		_, err := c.c.Exec(t.Context(), text).ReadAll()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func number(t testing.TB, s *Store, text string) (n int64) {
	t.Helper()
	err := s.Query(t.Context(), text, nil, func(scan func(...any) error) error { return scan(&n) })
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// N-13, N-14, N-15, N-20: tallies, the window by entries and bytes, the reset, the memory of ids. N-33, N-34, N-35: crashes, groups, the fence.
func TestSuite(t *testing.T) {
	storetest.Run(t, storetest.Engine{
		SQL: true,
		Open: func(t *testing.T, sequences []neuron.Sequence) neuron.Store {
			return openAt(t, postgrestest.Database(t), Options{Sequences: sequences})
		},
		Reopen: func(t *testing.T, s neuron.Store) neuron.Store {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			return openAt(t, dsnOf(t, s.(*Store)), Options{Sequences: storetest.Sequences()})
		},
		// The server dies without a word, recovers, and the database is copied as it is then.
		Crash: func(t *testing.T, s neuron.Store) neuron.Store {
			server := postgrestest.Shared(t)
			if err := server.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := server.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			dsn := dsnOf(t, s.(*Store))
			name := dsn[strings.Index(dsn, "dbname=")+len("dbname="):]
			name, _, _ = strings.Cut(name, " ")
			copied, err := server.Create(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			return openAt(t, server.DSN(copied), Options{Sequences: storetest.Sequences()})
		},
		Take: func(t testing.TB, s neuron.Store, f neuron.Fence, places neuron.PlaceSet) neuron.Fence {
			return force(t, s.(*Store), f, places)
		},
	})
}
