package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"soma/client"
	"soma/internal/cli/exit"
	"soma/internal/config"
	"soma/wire"
)

// stand answers in a daemon's place for a home; what answer returns is written, a *wire.Error as a refusal.
func stand(t *testing.T, home string, answer func(h config.Home, w http.ResponseWriter, r *http.Request) any) {
	t.Helper()
	h, err := config.HomeAt(home)
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
	daemon := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(wire.HeaderVersion, strconv.Itoa(wire.Version))
		w.Header().Set(wire.HeaderBuild, Build())
		body := any(wire.Health{OK: true})
		if r.URL.Path != "/healthz" {
			body = answer(h, w, r)
		}
		if refusal, ok := body.(*wire.Error); ok {
			w.WriteHeader(refusal.Status)
		}
		if body != nil {
			_ = json.NewEncoder(w).Encode(body)
		}
	})}
	served := make(chan error, 1)
	go func() { served <- daemon.Serve(l) }()
	t.Cleanup(func() { _ = daemon.Close(); <-served })
}

// A cell that meets the end of its session goes into the one that came after it; only once.
func TestPyBesideNew(t *testing.T) {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, again := range []bool{false, true} {
		s := newSoma(t)
		var mu sync.Mutex
		lists := 0
		var given []string
		stand(t, s.home, func(_ config.Home, _ http.ResponseWriter, r *http.Request) any {
			mu.Lock()
			defer mu.Unlock()
			if r.URL.Path == "/v1/sessions" {
				lists++
				return wire.List[wire.Session]{Items: []wire.Session{{ID: fmt.Sprintf("s%d", lists), Kind: wire.SessionPy, Workspace: dir, State: "open", CreatedAt: noon}}}
			}
			_, rest, _ := strings.Cut(r.URL.Path, "/v1/sessions/")
			id, _, _ := strings.Cut(rest, "/")
			given = append(given, r.Method+" "+id)
			if id == "s1" || again {
				return wire.Errorf(wire.SessionClosed, "the session is closed")
			}
			return wire.Errorf(wire.Busy, "it has arrived")
		})
		code, out, errs := s.run(t, "py", "-c", "1")
		want, text := exit.Busy, "cannot do that: it has arrived"
		if again {
			want, text = exit.Refused, "cannot run the cell: this folder's kernel was ended at the same time; run soma py again"
		}
		if code != want || out != "" || !strings.Contains(errs, text) {
			t.Errorf("code %d, out %q, errors %q", code, out, errs)
		}
		if !slices.Equal(given, []string{"PUT s1", "PUT s2"}) {
			t.Errorf("given %v", given)
		}
	}
}

// I-50: a stream that ends because the token was replaced is followed on with the new one.
func TestFollowWithANewToken(t *testing.T) {
	s := newSoma(t)
	var asked []string
	stand(t, s.home, func(h config.Home, w http.ResponseWriter, r *http.Request) any {
		asked = append(asked, r.Header.Get("Authorization"))
		if len(asked) == 1 {
			if err := h.RotateToken(); err != nil {
				t.Error(err)
			}
		}
		fmt.Fprintf(w, "event: unauthorized\ndata: {\"code\":\"unauthorized\",\"status\":401,\"title\":\"no\"}\n\n")
		return nil
	})
	if code, _, errs := s.run(t, "version"); code != exit.OK { // it makes the client
		t.Fatal(errs)
	}
	err := s.app.follow(t.Context(), "s", wire.Cursor{}, func(client.Frame) error { return nil })
	var refusal *wire.Error
	if !errors.As(err, &refusal) || refusal.Code != wire.Unauthorized {
		t.Errorf("it ended with %v", err)
	}
	if len(asked) != 2 || asked[0] == asked[1] {
		t.Errorf("%d requests, of them %d with a token of their own", len(asked), len(slices.Compact(asked)))
	}
}

// I-15: status does not wait longer than other commands for a daemon that does not answer.
func TestStatusOfAMuteDaemon(t *testing.T) {
	s := newSoma(t)
	over := make(chan struct{})
	stand(t, s.home, func(_ config.Home, _ http.ResponseWriter, r *http.Request) any {
		select {
		case <-r.Context().Done():
		case <-over:
		}
		return nil
	})
	defer close(over)
	begun := time.Now()
	code, _, errs := s.run(t, "status")
	if took := time.Since(begun); code != exit.Busy || took > 10*time.Second {
		t.Errorf("code %d after %s: %s", code, took, errs)
	}
}
