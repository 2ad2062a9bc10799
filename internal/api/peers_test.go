package api_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"soma/client"
	"soma/internal/api"
	"soma/wire"
)

// others stand in for the other daemons of a store: they hold what has "far" in its name.
type others struct {
	w *world

	mu    sync.Mutex
	asked []api.Question
	named []api.Named
	moved bool // branches are elsewhere now
	on    func(q api.Question) (*http.Response, error)
}

func (o *others) far(n api.Named) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Contains(n.Session+n.Cell+n.Neuron+n.Branch, "far") || n.PID == 99 || o.moved && n.Branch != ""
}

func (o *others) Holds(_ context.Context, n api.Named) (bool, error) { return !o.far(n), nil }

func (o *others) Ask(_ context.Context, n api.Named, q api.Question) (*http.Response, error) {
	if !o.far(n) {
		return nil, nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked, o.named = append(o.asked, q), append(o.named, n)
	return o.on(q)
}

func (o *others) Hints() api.Subscription { return o.w.Subscribe("wide") }

func said(status int, kind, body string) (*http.Response, error) {
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(strings.NewReader(body))}, nil
}

// raw makes a request with a token and headers that alternate with their values.
func (r *running) raw(t *testing.T, method, path, token, body string, header ...string) (int, string, http.Header) {
	t.Helper()
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return r.dial(ctx) }}
	defer tr.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://soma"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	if body == "" {
		req.Header.Del("Content-Type")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text), resp.Header
}

func withOthers(t *testing.T) (*running, *others) {
	o := &others{}
	r := start(t, func(s *api.Server) {
		s.Peers = o
		known := s.Authorize
		s.Authorize = func(token string) api.Access {
			if token == "peer" {
				return api.Peer
			}
			return known(token)
		}
	})
	o.w = r.world
	return r, o
}

// M-12: who follows a kernel or a job of a branch that another daemon holds by now is let go, and finds that one.
func TestBranchMoves(t *testing.T) {
	r, o := withOthers(t)
	in, job := r.read(t, "/v1/branches/b1/kernel/events"), r.read(t, "/v1/branches/b1/jobs/j1/output/events")
	in.event()
	job.event()
	o.mu.Lock()
	o.moved = true
	o.mu.Unlock()
	r.kernels.tell()
	for _, one := range []*reader{in, job} {
		if one.lines.Scan() {
			t.Errorf("the stream goes on with %q", one.lines.Text())
		}
	}
}

// M-12, I-52: what another daemon holds is asked of it, without anything of who asks, and what it says goes to the client as it is;
// who may not do a thing here may not do it there. Rows are read where one asks.
func TestElsewhere(t *testing.T) {
	r, o := withOthers(t)
	o.on = func(api.Question) (*http.Response, error) {
		return said(409, "application/problem+json", `{"code":"conflict"}`)
	}
	for _, one := range []struct{ method, path, body string }{
		{"PUT", "/v1/sessions/far", `{"workspace":"/w"}`}, {"DELETE", "/v1/sessions/far", ""}, {"PUT", "/v1/sessions/far/inputs/i", `{"text":"x"}`},
		{"PUT", "/v1/sessions/far/cells/c", `{"code":"1"}`}, {"PUT", "/v1/cells/far/interrupt", ""}, {"PUT", "/v1/processes/99/signals/s", `{"signal":"pause"}`},
		{"GET", "/v1/processes/99?wait=1s", ""}, {"GET", "/v1/sessions/far/events?after=g.7", ""}, {"GET", "/v1/neurons/me/session/far/journal/entries", ""},
		{"GET", "/v1/branches/far/kernel", ""}, {"PUT", "/v1/branches/far/jobs/j/stop", ""}, {"GET", "/v1/branches/far/jobs/j/output/events?offset=7", ""},
		{"GET", "/v1/cells/far/output", ""}, {"PUT", "/v1/sessions/far/shell/l", `{"command":"ls"}`},
	} {
		o.asked = nil
		header := []string{"Last-Event-ID", "g.7", "Cookie", "mine", "X-Forwarded-For", "me", wire.HeaderVersion, "1"}
		status, text, got := r.raw(t, one.method, one.path, "operator", one.body, header...)
		if status != 409 || text != `{"code":"conflict"}` || got.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %s: %d %s", one.method, one.path, status, text)
		}
		if len(o.asked) != 1 {
			t.Fatalf("%s %s: asked %d times", one.method, one.path, len(o.asked))
		}
		q := o.asked[0]
		stream := strings.Contains(one.path, "/events") || strings.HasSuffix(one.path, "/entries")
		if q.Method != one.method || q.Path != one.path || string(q.Body) != one.body || q.Stream != stream {
			t.Errorf("asked %+v", q)
		}
		if q.Header.Get("Authorization") != "" || q.Header.Get("Cookie") != "" || q.Header.Get("X-Forwarded-For") != "" || q.Header.Get("Last-Event-ID") != "g.7" {
			t.Errorf("%s: headers %v", one.path, q.Header)
		}
	}
	o.asked = nil
	for path, want := range map[string]int{"/v1/sessions/far": 404, "/v1/processes/99": 404, "/v1/sessions": 200, "/v1/cells/far": 404} {
		if status, text, _ := r.raw(t, "GET", path, "reader", ""); status != want {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	if status, _, _ := r.raw(t, "PUT", "/v1/sessions/far/inputs/i", "reader", `{"text":"x"}`); status != 403 {
		t.Errorf("who may only read has written: %d", status)
	}
	if status, _, _ := r.raw(t, "PUT", "/v1/sessions/far/inputs/i", "operator", strings.Repeat("x", wire.MaxBody+1)); status != 413 {
		t.Errorf("a body that is too large: %d", status)
	}
	if len(o.asked) != 0 {
		t.Errorf("asked elsewhere for %+v", o.asked)
	}
	o.on = func(api.Question) (*http.Response, error) {
		return nil, wire.Errorf(wire.Unavailable, "nobody").Do("try again")
	}
	if status, _, header := r.raw(t, "DELETE", "/v1/sessions/far", "operator", ""); status != 503 || header.Get("Retry-After") == "" {
		t.Errorf("without a holder: %d, %v", status, header)
	}
}

// M-12: a request that was handed on is answered or refused, and never handed on again. A peer does what is owned, whatever level
// that asks of a person, and rules nothing else.
func TestSecondHop(t *testing.T) {
	r, o := withOthers(t)
	if _, err := r.client.OpenSession(t.Context(), "near", wire.OpenSession{Workspace: "/w"}); err != nil {
		t.Fatal(err)
	}
	for _, one := range []struct {
		method, path, body string
		status             int
	}{
		{"PUT", "/v1/sessions/far/inputs/i", `{"text":"x"}`, 503}, {"GET", "/v1/sessions/far/events", "", 503}, {"PUT", "/v1/processes/99/signals/s", `{"signal":"pause"}`, 503},
		{"PUT", "/v1/sessions/near/inputs/i", `{"text":"x"}`, 200}, {"PUT", "/v1/sessions/near/removal", `{}`, 409},
		{"POST", "/v1/daemon/stop", `{"kernels":false}`, 403}, {"POST", "/v1/prune", `{}`, 403},
	} {
		if status, text, _ := r.raw(t, one.method, one.path, "peer", one.body, wire.HeaderHop, "n1"); status != one.status {
			t.Errorf("%s %s: %d %s", one.method, one.path, status, text)
		}
	}
	if len(o.asked) != 0 {
		t.Errorf("handed on again: %+v", o.asked)
	}
}

// I-22, M-12: a stream that comes from elsewhere arrives event by event. Where that daemon stops, breaks off in the middle of an event or refuses,
// the client's stream ends as one that was lost, so that it follows again.
func TestRelayedStream(t *testing.T) {
	r, o := withOthers(t)
	event := "id: g.1\nevent: note\ndata: {\"session\":\"far\",\"seq\":1,\"kind\":\"note\",\"at\":\"2026-01-02T03:04:05Z\",\"body\":{}}\n\n"
	for name, rest := range map[string]string{
		"stopped": "event: stopping\ndata: {}\n\n", "refused": "event: unauthorized\ndata: {\"code\":\"unauthorized\"}\n\n",
		"broken": "id: g.2\nevent: note\ndata: {\"session\":\"fa", "ended": "", "quiet": ":\n\n",
	} {
		o.on = func(q api.Question) (*http.Response, error) {
			return said(200, "text/event-stream", ": soma\n\n"+event+rest)
		}
		var seen []uint64
		at, err := r.client.Follow(t.Context(), "far", wire.Cursor{}, func(f client.Frame) error {
			if f.Event != nil {
				seen = append(seen, f.Event.Seq)
			}
			return nil
		})
		if !errors.Is(err, client.ErrLost) || !slices.Equal(seen, []uint64{1}) || at.Seq != 1 {
			t.Errorf("%s: %v, saw %v, goes on after %v", name, err, seen, at)
		}
	}
	o.on = func(q api.Question) (*http.Response, error) {
		return said(404, "application/problem+json", `{"code":"not_found","status":404,"title":"there is none"}`)
	}
	_, err := r.client.Follow(t.Context(), "far", wire.Cursor{}, func(client.Frame) error { return nil })
	var refusal *wire.Error
	if !errors.As(err, &refusal) || refusal.Code != wire.NotFound {
		t.Errorf("a stream that is refused there: %v", err)
	}
}

// N-36: between two lives of a daemon everybody hears that it comes back.
func TestAway(t *testing.T) {
	r, _ := withOthers(t)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", r.socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- api.Away(ctx, l) }()
	for _, path := range []string{"/healthz", "/v1/status", "/x"} {
		status, text, header := r.raw(t, "GET", path, "", "")
		if status != 503 || !strings.Contains(text, `"unavailable"`) || header.Get("Retry-After") == "" {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	limited, done := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer done()
	_, err = r.client.Status(limited)
	var refusal *wire.Error
	if !errors.As(err, &refusal) || refusal.Code != wire.Unavailable {
		t.Errorf("a client hears %v", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// N-36: Away ends with its context, whoever hears first of that: a daemon begins its next life after it.
func TestAwayEnds(t *testing.T) {
	for range 500 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- api.Away(ctx, l) }()
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
}
