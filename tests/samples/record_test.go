package samples

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"soma/internal/api/apitest"
	"soma/internal/config"
	"soma/wire"
)

// patience bounds the whole of the test's requests.
const patience = time.Minute

// recorder asks a daemon, checks every answer and event, and notes which routes and kinds of events it has seen.
type recorder struct {
	t      *testing.T
	ctx    context.Context // of all requests: nothing is waited for longer
	spec   *apitest.Spec
	http   *http.Client
	token  string
	routes map[string]bool // "METHOD pattern", with a good answer
	kinds  map[string]bool // of a session's events
}

func newRecorder(t *testing.T, spec *apitest.Spec, home config.Home) *recorder {
	t.Helper()
	token, err := home.ReadToken()
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return config.DialSocket(ctx, home.Socket())
	}}
	t.Cleanup(transport.CloseIdleConnections)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return &recorder{
		t: t, ctx: ctx, spec: spec, http: &http.Client{Transport: transport}, token: token.Reveal(),
		routes: map[string]bool{}, kinds: map[string]bool{},
	}
}

// fill puts values into a pattern's {names}, in order; what is left of them is the query.
func fill(pattern string, values []string) string {
	path := pattern
	for _, v := range values {
		if i, j := strings.IndexByte(path, '{'), strings.IndexByte(path, '}'); i >= 0 {
			path = path[:i] + v + path[j+1:]
		} else {
			path += v
		}
	}
	return path
}

func (r *recorder) send(method, path, body string) *http.Response {
	r.t.Helper()
	var text io.Reader
	if body != "" {
		text = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(r.ctx, method, "http://soma"+path, text)
	if err != nil {
		r.t.Fatal(err)
	}
	if r.token != "" {
		req.Header.Set("Authorization", "Bearer "+r.token)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := r.http.Do(req)
	if err != nil {
		r.t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp
}

// ask records one answer: a good one where code is "", else the refusal with that code.
func (r *recorder) ask(code wire.Code, method, pattern string, body string, values ...string) []byte {
	r.t.Helper()
	path := fill(pattern, values)
	resp := r.send(method, path, body)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatalf("%s %s: %v", method, path, err)
	}
	if err := r.spec.Check(method, pattern, resp.StatusCode, resp.Header.Get("Content-Type"), text); err != nil {
		r.t.Errorf("%s is not as described: %v", path, err)
	}
	var refusal wire.Error
	if resp.StatusCode != http.StatusOK {
		if err := json.Unmarshal(text, &refusal); err != nil {
			r.t.Fatalf("%s %s: %s: %v", method, path, text, err)
		}
	}
	if refusal.Code != code {
		r.t.Fatalf("%s %s: code %q, want %q: %s", method, path, refusal.Code, code, text)
	}
	if code == "" {
		r.routes[method+" "+pattern] = true
	}
	return text
}

// good records a good answer and reads it.
func good[T any](r *recorder, method, pattern, body string, values ...string) T {
	r.t.Helper()
	var v T
	if text := r.ask("", method, pattern, body, values...); json.Unmarshal(text, &v) != nil {
		r.t.Fatalf("%s %s: cannot read %s", method, pattern, text)
	}
	return v
}

// event is one event of a stream.
type event struct{ kind, id, data string }

// follower reads one stream.
type follower struct {
	r       *recorder
	pattern string
	lines   *bufio.Reader
}

// follow opens a stream; it ends with the test.
func (r *recorder) follow(pattern string, values ...string) *follower {
	r.t.Helper()
	resp := r.send(http.MethodGet, fill(pattern, values), "")
	r.t.Cleanup(func() { resp.Body.Close() })
	if kind := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || kind != "text/event-stream" {
		r.t.Fatalf("%s: %s as %s", pattern, resp.Status, kind)
	}
	return &follower{r, pattern, bufio.NewReader(resp.Body)}
}

// next reads and checks one event.
func (f *follower) next() (event, error) {
	var e event
	for {
		line, err := f.lines.ReadString('\n')
		if err != nil {
			return e, err
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch name {
		case "event":
			e.kind = value
		case "id":
			e.id = value
		case "data":
			e.data = value
		case "":
			if e.kind == "" { // after a comment
				continue
			}
			if err := f.r.spec.CheckEvent(f.pattern, e.kind, e.id, []byte(e.data)); err != nil {
				return e, fmt.Errorf("the event is not as described: %w", err)
			}
			f.r.routes["GET "+f.pattern] = true
			f.r.kinds[e.kind] = true
			return e, nil
		}
	}
}

// until records events through one of a kind whose data holds all texts, and returns that.
func (f *follower) until(kind string, texts ...string) event {
	f.r.t.Helper()
	for {
		e, err := f.next()
		if err != nil {
			f.r.t.Fatalf("waiting for %s with %q: %v (last %+v)", kind, texts, err, e)
		}
		found := e.kind == kind
		for _, text := range texts {
			found = found && strings.Contains(e.data, text)
		}
		if found {
			return e
		}
	}
}

// body reads the body of a committed event.
func body[T any](f *follower, e event) T {
	f.r.t.Helper()
	var row wire.Event
	var v T
	if err := json.Unmarshal([]byte(e.data), &row); err != nil {
		f.r.t.Fatal(err)
	}
	if err := json.Unmarshal(row.Body, &v); err != nil {
		f.r.t.Fatal(err)
	}
	return v
}
