package postgrestest

import (
	"context"
	"os"
	"sync"
	"testing"
)

// shared is the one server of a test process.
var shared struct {
	sync.Mutex
	server *Server
}

// Main runs the tests of a package and then ends the server, if one was started. TestMain passes its result to os.Exit, or
// calls it within goleak.
func Main(m interface{ Run() int }) int {
	code := m.Run()
	shared.Lock()
	defer shared.Unlock()
	if shared.server != nil {
		if err := shared.server.Stop(); err != nil {
			_, _ = os.Stderr.WriteString("postgrestest: " + err.Error() + "\n")
			code = max(code, 1)
		}
		shared.server = nil
	}
	return code
}

// Shared returns the server of the test process, started at the first call.
func Shared(t testing.TB) *Server {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		s, err := Start(context.WithoutCancel(t.Context()), os.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		shared.server = s
	}
	return shared.server
}

// Database returns the DSN of a fresh database on the shared server.
func Database(t testing.TB) string {
	t.Helper()
	s := Shared(t)
	name, err := s.Create(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// Hundreds of databases would make each recovery of the server slow.
		if err := s.Exec(context.WithoutCancel(t.Context()), "postgres", "drop database "+name+" with (force)"); err != nil {
			t.Error(err)
		}
	})
	return s.DSN(name)
}
