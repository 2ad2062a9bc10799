package api_test

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"soma/internal/api"
)

// N-37, I-25: the observer is told of each request with its route, or without one, and its status; never of what the client wrote. The
// metrics want the token like everything else.
func TestRequestsAreObserved(t *testing.T) {
	var mu sync.Mutex
	var told []api.Answered
	counted := make(chan struct{}, 100)
	var broken atomic.Bool
	r := start(t, func(s *api.Server) {
		s.Observe = func(a api.Answered) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, a)
			counted <- struct{}{}
		}
		s.Metrics = func() (string, []byte, error) {
			if broken.Load() {
				return "", nil, errors.New("broken")
			}
			return "text/plain; version=0.0.4", []byte("soma_up 1\n"), nil
		}
	})
	for _, c := range []struct {
		first  string
		header []string
		status int
		route  string
	}{
		{"GET /metrics", []string{"Host: soma", good}, 200, "GET /metrics"},
		{"GET /metrics", []string{"Host: soma"}, 401, ""},
		{"GET /metrics", []string{"Host: soma", "Authorization: Bearer wrong"}, 401, ""},
		{"GET /metrics", []string{"Host: example.org", good}, 403, ""},
		{"POST /metrics", []string{"Host: soma", good}, 405, "/metrics"},
		{"GET /metrics?x=SECRET", []string{"Host: soma", good}, 400, "GET /metrics"},
		{"GET /v1/sessions/SECRET", []string{"Host: soma", good}, 404, "GET /v1/sessions/{session}"},
		{"GET /SECRET", []string{"Host: soma", good}, 404, "/"},
		{"GET /metrics/../SECRET", []string{"Host: soma", good}, 404, ""},
		{"GET /healthz", []string{"Host: soma"}, 200, "GET /healthz"},
	} {
		a := r.ask(t, c.first, c.header, "")
		<-counted
		mu.Lock()
		got := told[len(told)-1]
		mu.Unlock()
		if a.status != c.status || got.Status != c.status || got.Route != c.route || got.Stream || got.Took <= 0 || strings.Contains(got.Route, "SECRET") {
			t.Errorf("%s: answered %d, told %+v, want %d %q", c.first, a.status, got, c.status, c.route)
		}
		if c.status == 200 && c.route == "GET /metrics" && (a.body != "soma_up 1\n" || a.header.Get("Content-Type") != "text/plain; version=0.0.4") {
			t.Errorf("%q, %v", a.body, a.header)
		}
	}
	broken.Store(true)
	if a := r.ask(t, "GET /metrics", []string{"Host: soma", good}, ""); a.status != 500 || strings.Contains(a.body, "broken") {
		t.Errorf("%d %s", a.status, a.body)
	}
	<-counted
	in := r.read(t, "/v1/events")
	in.next()
	if err := in.conn.Close(); err != nil {
		t.Fatal(err)
	}
	r.note("p", 1) // what is written shows that the reader is gone
	<-counted
	mu.Lock()
	defer mu.Unlock()
	if got := told[len(told)-1]; got.Route != "GET /v1/events" || !got.Stream || got.Status != 200 {
		t.Errorf("a stream is told as %+v", got)
	}
}
