package cli

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"soma/internal/cli/exit"
	"soma/internal/config"
	"soma/wire"
)

// I-16: a client that waits is not put off by a daemon that is there and answers nothing for a while, because it is paused or its
// database is silent.
func TestWaitsForASilentDaemon(t *testing.T) {
	s := newSoma(t)
	s.healthWait = 100 * time.Millisecond
	h, err := config.HomeAt(s.home)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(h.Create(), h.EnsureToken()); err != nil {
		t.Fatal(err)
	}
	l, err := config.ListenSocket(h.Socket())
	if err != nil {
		t.Fatal(err)
	}
	var asked, silent atomic.Int32
	code := 3
	daemon := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(wire.HeaderVersion, strconv.Itoa(wire.Version))
		switch {
		case r.URL.Path == "/healthz" && asked.Load() == 1 && silent.Add(1) <= 2:
			<-r.Context().Done()
		case r.URL.Path == "/healthz":
			_ = json.NewEncoder(w).Encode(wire.Health{OK: true})
		case asked.Add(1) == 1:
			_, _ = w.Write([]byte("{"))
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler) // the connection breaks
		default:
			_ = json.NewEncoder(w).Encode(wire.Process{PID: 1, State: wire.State{State: wire.Terminated}, ExitCode: &code})
		}
	})}
	served := make(chan error, 1)
	go func() { served <- daemon.Serve(l) }()
	defer func() { _ = daemon.Close(); <-served }()
	if got, out, errs := s.run(t, "wait", "1"); got != code || strings.Contains(errs, "started") || silent.Load() != 3 {
		t.Errorf("code %d, out %q, errors %q, asked %d times (no answer is %d)", got, out, errs, silent.Load(), exit.Busy)
	}
}
