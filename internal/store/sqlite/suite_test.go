package sqlite

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"go.uber.org/goleak"

	"soma/internal/neuron"
	"soma/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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

func openAt(t testing.TB, path string, sequences []neuron.Sequence) *Store {
	t.Helper()
	s, err := Open(t.Context(), path, Options{Sequences: sequences, Migrations: withSuite(t)})
	if err != nil {
		t.Fatal(err)
	}
	s.past.enough = 100 // so that few turns make a batch
	return s
}

// N-13, N-14, N-15, N-20: tallies, the window by entries and bytes, the reset, the memory of ids. N-33, N-34, N-35: crashes, groups, the fence.
func TestSuite(t *testing.T) {
	storetest.Run(t, storetest.Engine{
		SQL: true,
		Open: func(t *testing.T, sequences []neuron.Sequence) neuron.Store {
			return openAt(t, filepath.Join(t.TempDir(), "soma.db"), sequences)
		},
		Reopen: func(t *testing.T, s neuron.Store) neuron.Store {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			return openAt(t, s.(*Store).path, storetest.Sequences())
		},
		Crash: func(t *testing.T, s neuron.Store) neuron.Store {
			return openAt(t, copied(t, s.(*Store)), storetest.Sequences())
		},
	})
}

// copied is what a kill would leave: the database and its WAL, without what lies in memory. No checkpoint runs meanwhile.
func copied(t testing.TB, s *Store) string {
	t.Helper()
	s.checkpoint.busy.Lock()
	defer s.checkpoint.busy.Unlock()
	to := filepath.Join(t.TempDir(), "soma.db")
	for _, suffix := range []string{"", "-wal"} {
		b, err := os.ReadFile(s.path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to+suffix, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return to
}
