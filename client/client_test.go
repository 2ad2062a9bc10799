package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"soma/client"
	"soma/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// daemon is a real HTTP server on a Unix socket that answers as a test wants.
func daemon(t *testing.T, answer http.HandlerFunc) func(context.Context) (net.Conn, error) {
	t.Helper()
	dir, err := os.MkdirTemp("", "client")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: answer}
	var wait sync.WaitGroup
	wait.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() { server.Close(); wait.Wait() })
	return func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "unix", socket) }
}

func open(t *testing.T, o client.Options) *client.Client {
	t.Helper()
	if o.Token == nil {
		o.Token = func() (string, error) { return "secret", nil }
	}
	c, err := client.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// speak sets the headers of a daemon of this wire version.
func speak(w http.ResponseWriter, build string) {
	w.Header().Set(wire.HeaderVersion, fmt.Sprint(wire.Version))
	w.Header().Set(wire.HeaderBuild, build)
}

func TestOptions(t *testing.T) {
	if _, err := client.New(client.Options{Address: "127.0.0.1:1"}); err == nil {
		t.Error("a client without a token")
	}
	if _, err := client.New(client.Options{Token: func() (string, error) { return "", nil }}); err == nil {
		t.Error("a client without an address")
	}
}

// What each method sends, and that it reads the answer.
func TestRequests(t *testing.T) { // I-24
	var got string
	dial := daemon(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Method, r.URL.RequestURI(), body))
		if h := r.Header.Get("Authorization"); h != "Bearer secret" {
			t.Errorf("%s with the credential %q", got, h)
		}
		if kind := r.Header.Get("Content-Type"); (r.Method == "GET") != (kind == "") {
			t.Errorf("%s with the content type %q", got, kind)
		}
		if r.Header.Get(wire.HeaderVersion) != fmt.Sprint(wire.Version) || r.Header.Get(wire.HeaderBuild) != "b" {
			t.Errorf("%s without version or build: %v", got, r.Header)
		}
		speak(w, "b")
		fmt.Fprint(w, `{"items":[]}`)
	})
	c := open(t, client.Options{Dial: dial, Build: "b"})
	ctx := t.Context()
	for want, call := range map[string]func() error{
		"GET /healthz":                          func() error { return c.Health(ctx) },
		"GET /v1/status":                        func() error { _, err := c.Status(ctx); return err },
		"GET /v1/models":                        func() error { _, err := c.Models(ctx); return err },
		"GET /metrics":                          func() error { _, err := c.Metrics(ctx); return err },
		"GET /v1/openapi.yaml":                  func() error { _, err := c.OpenAPI(ctx); return err },
		`POST /v1/daemon/stop {"kernels":true}`: func() error { _, err := c.Stop(ctx, wire.Stop{Kernels: true}); return err },
		`PUT /v1/sessions/s {"workspace":"/w"}`: func() error {
			_, err := c.OpenSession(ctx, "s", wire.OpenSession{Workspace: "/w"})
			return err
		},
		"GET /v1/sessions/s": func() error { _, err := c.Session(ctx, "s"); return err },
		"GET /v1/sessions":   func() error { _, err := c.Sessions(ctx, wire.SessionFilter{}); return err },
		"GET /v1/sessions?after=a&kind=py&limit=3&workspace=%2Fa+b": func() error {
			_, err := c.Sessions(ctx, wire.SessionFilter{Workspace: "/a b", Kind: "py", After: "a", Limit: 3})
			return err
		},
		"DELETE /v1/sessions/s": func() error { _, err := c.CloseSession(ctx, "s"); return err },
		`PUT /v1/sessions/s/inputs/i {"text":"t"}`: func() error {
			_, err := c.Admit(ctx, "s", "i", wire.Input{Text: "t"})
			return err
		},
		"GET /v1/sessions/s/inputs/i": func() error { _, err := c.Input(ctx, "s", "i"); return err },
		`PUT /v1/sessions/s/cells/c {"code":"1"}`: func() error {
			_, err := c.RunCell(ctx, "s", "c", wire.RunCell{Code: "1"})
			return err
		},
		"GET /v1/cells/x":                         func() error { _, err := c.Cell(ctx, "x"); return err },
		"PUT /v1/cells/x/interrupt":               func() error { _, err := c.InterruptCell(ctx, "x"); return err },
		"GET /v1/cells/x/output":                  func() error { _, err := c.Output(ctx, "x", 0, 0); return err },
		"GET /v1/cells/x/output?limit=2&offset=1": func() error { _, err := c.Output(ctx, "x", 1, 2); return err },
		"GET /v1/processes":                       func() error { _, err := c.Processes(ctx, wire.ProcessFilter{}); return err },
		"GET /v1/processes?after=4&all=true&limit=5&session=s&workspace=w": func() error {
			_, err := c.Processes(ctx, wire.ProcessFilter{All: true, Workspace: "w", Session: "s", After: 4, Limit: 5})
			return err
		},
		"GET /v1/kernels":                                     func() error { _, err := c.Kernels(ctx, false); return err },
		"GET /v1/kernels?all=true":                            func() error { _, err := c.Kernels(ctx, true); return err },
		"GET /v1/branches/b/kernel":                           func() error { _, err := c.Kernel(ctx, "b"); return err },
		"PUT /v1/branches/b/kernel/restart":                   func() error { _, err := c.RestartKernel(ctx, "b"); return err },
		"GET /v1/branches/b/jobs":                             func() error { _, err := c.Jobs(ctx, "b"); return err },
		"GET /v1/branches/b/jobs/recent":                      func() error { _, err := c.RecentJobs(ctx, "b"); return err },
		"GET /v1/branches/b/jobs/j/output":                    func() error { _, err := c.JobOutput(ctx, "b", "j", client.End, 0); return err },
		"GET /v1/branches/b/jobs/j/output?limit=5&offset=0":   func() error { _, err := c.JobOutput(ctx, "b", "j", 0, 5); return err },
		"PUT /v1/branches/b/jobs/a%2Fb/stop":                  func() error { return c.StopJob(ctx, "b", "a/b") },
		`PUT /v1/branches/b/complete {"text":"t","cursor":1}`: func() error { _, err := c.Complete(ctx, "b", "t", 1); return err },
		"GET /v1/cells/x/trace":                               func() error { _, err := c.CellTrace(ctx, "x"); return err },
		"GET /v1/cells/x/images/2":                            func() error { _, _, err := c.CellImage(ctx, "x", 2); return err },
		"GET /readyz":                                         func() error { return c.Ready(ctx) },
		`PUT /v1/sessions/s/shell/l {"command":"ls"}`:         func() error { _, err := c.RunShell(ctx, "s", "l", wire.RunShell{Command: "ls"}); return err },
		"GET /v1/sessions/s/shell/l":                          func() error { _, err := c.ShellCommand(ctx, "s", "l"); return err },
		"PUT /v1/sessions/s/shell/l/interrupt":                func() error { _, err := c.InterruptShell(ctx, "s", "l"); return err },
		"GET /v1/sessions/s/shell/l/output?limit=4&offset=2":  func() error { _, err := c.ShellOutput(ctx, "s", "l", 2, 4); return err },
		"GET /v1/processes/3":                                 func() error { _, err := c.Process(ctx, 3); return err },
		"GET /v1/processes/3?wait=1m0s":                       func() error { _, err := c.Wait(ctx, 3, 1<<50); return err },
		`PUT /v1/processes/3/signals/x {"signal":"pause"}`: func() error {
			_, err := c.Signal(ctx, 3, "x", wire.Pause)
			return err
		},
		"GET /v1/processes/3/messages?after=7": func() error { _, err := c.Messages(ctx, 3, 7, 0); return err },
		"GET /v1/processes/3/ledger?limit=9":   func() error { _, err := c.Ledger(ctx, 3, "", 9); return err },
		"GET /v1/sessions/a%2Fb":               func() error { _, err := c.Session(ctx, "a/b"); return err },
	} {
		if err := call(); err != nil {
			t.Errorf("%s: %v", want, err)
		}
		if got != want {
			t.Errorf("sent %s, want %s", got, want)
		}
	}
}

// A daemon of another build is told once; one of another wire version is refused.
func TestOtherBuild(t *testing.T) { // I-24
	build := "new"
	version := fmt.Sprint(wire.Version)
	dial := daemon(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(wire.HeaderVersion, version)
		w.Header().Set(wire.HeaderBuild, build)
		fmt.Fprint(w, "{}")
	})
	var told []string
	c := open(t, client.Options{Dial: dial, Build: "old", OtherBuild: func(daemon string) { told = append(told, daemon) }})
	for range 3 {
		if _, err := c.Status(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(told) != 1 || told[0] != "new" {
		t.Errorf("told %q", told)
	}
	for _, other := range []string{"", "999"} {
		version = other
		_, err := c.Status(t.Context())
		var e *wire.Error
		if !errors.As(err, &e) || e.Code != wire.WireVersion {
			t.Errorf("wire version %q: %v", other, err)
		}
	}
}

func TestErrors(t *testing.T) { // I-24
	none := open(t, client.Options{Dial: func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(t.TempDir(), "none"))
	}})
	_, err := none.Status(t.Context())
	var lost *client.LostError
	if !errors.Is(err, client.ErrLost) || !errors.As(err, &lost) || !lost.Unsent || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no daemon: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := none.Status(ended); !errors.Is(err, context.Canceled) || errors.Is(err, client.ErrLost) {
		t.Errorf("an ended context: %v", err)
	}
	noToken := errors.New("no token file")
	var asked atomic.Int64
	answer := func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		switch r.URL.Path {
		case "/v1/status": // the daemon dies in the middle
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "{")
			panic(http.ErrAbortHandler)
		case "/v1/models": // not a daemon at all
			http.Error(w, "busy", http.StatusBadGateway)
		case "/v1/processes/1":
			http.Redirect(w, r, "http://elsewhere.example/", http.StatusFound)
		case "/v1/processes/2":
			<-r.Context().Done()
		case "/healthz":
			speak(w, "")
			fmt.Fprint(w, "{}")
		}
	}
	dial := daemon(t, answer)
	c := open(t, client.Options{Dial: dial})
	if _, err := c.Status(t.Context()); !errors.As(err, &lost) || lost.Unsent {
		t.Errorf("an answer that breaks off: %v", err)
	}
	if _, err := c.Models(t.Context()); err == nil || errors.Is(err, client.ErrLost) {
		t.Errorf("an answer without a code: %v", err)
	}
	if _, err := c.Process(t.Context(), 1); err == nil || errors.Is(err, client.ErrLost) {
		t.Errorf("a redirect: %v", err)
	}
	hasty := open(t, client.Options{Dial: dial, Timeout: 50 * time.Millisecond})
	if _, err := hasty.Process(t.Context(), 2); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, client.ErrLost) {
		t.Errorf("an answer that does not come: %v", err)
	}
	asked.Store(0)
	large := strings.Repeat("a", wire.MaxBody)
	var e *wire.Error
	if _, err := c.Admit(t.Context(), "s", "i", wire.Input{Text: large}); !errors.As(err, &e) || e.Code != wire.TooLarge || asked.Load() > 0 {
		t.Errorf("a body that is too large: %v, asked %d times", err, asked.Load())
	}
	blind := open(t, client.Options{Dial: dial, Token: func() (string, error) { return "", noToken }})
	if _, err := blind.Status(t.Context()); err != noToken {
		t.Errorf("without a token: %v", err)
	}
	if err := blind.Health(t.Context()); err != nil {
		t.Errorf("health without a token: %v", err)
	}
}

// A write that met a connection which the daemon was just closing is made again on a fresh one; the first write on a fresh
// connection is not: it may have been read.
// I-21, N-36: who has waited in vain for a daemon that answers, but not yet, is told what it answered.
func TestTimeIsOverWhileUnavailable(t *testing.T) {
	asked := 0
	c := open(t, client.Options{Dial: daemon(t, func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked > 1 {
			<-r.Context().Done()
			return
		}
		speak(w, "b")
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"code":"unavailable","status":503,"title":"not yet"}`)
	})})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := c.Status(ctx)
	var refusal *wire.Error
	if !errors.As(err, &refusal) || refusal.Code != wire.Unavailable || refusal.Title != "not yet" {
		t.Errorf("%v", err)
	}
}

// P-052: a stop and a restart are never made again by themselves: not where nobody answers for it now, and not on a fresh
// connection after one that broke.
func TestStopIsMadeOnce(t *testing.T) {
	var puts atomic.Int64
	c := open(t, client.Options{Dial: daemon(t, func(w http.ResponseWriter, r *http.Request) {
		speak(w, "")
		switch {
		case r.Method == http.MethodGet:
			fmt.Fprint(w, "{}")
		case puts.Add(1) == 1:
			panic(http.ErrAbortHandler)
		default:
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, `{"code":"unavailable","status":503,"title":"not now"}`)
		}
	})})
	if _, err := c.Status(t.Context()); err != nil { // a connection is in the pool
		t.Fatal(err)
	}
	if err := c.StopJob(t.Context(), "b", "j"); !errors.Is(err, client.ErrLost) || puts.Load() != 1 {
		t.Errorf("on a connection that breaks: %v, asked %d times", err, puts.Load())
	}
	var refusal *wire.Error
	if err := c.StopJob(t.Context(), "b", "j"); !errors.As(err, &refusal) || refusal.Code != wire.Unavailable || puts.Load() != 2 {
		t.Errorf("where nobody answers: %v, asked %d times", err, puts.Load())
	}
	if _, err := c.RestartKernel(t.Context(), "b"); !errors.As(err, &refusal) || puts.Load() != 3 {
		t.Errorf("a restart: %v, asked %d times", err, puts.Load())
	}
}

func TestDeadConnection(t *testing.T) { // I-21, I-24
	var puts, conns, dieAt atomic.Int64
	dial := daemon(t, func(w http.ResponseWriter, r *http.Request) {
		if puts.Add(1) == dieAt.Load() {
			panic(http.ErrAbortHandler)
		}
		speak(w, "")
		fmt.Fprint(w, "{}")
	})
	c := open(t, client.Options{Dial: func(ctx context.Context) (net.Conn, error) {
		conns.Add(1)
		return dial(ctx)
	}})
	dieAt.Store(2)
	for i := range 2 {
		if _, err := c.Admit(t.Context(), "s", fmt.Sprint(i), wire.Input{Text: "t"}); err != nil {
			t.Fatal(err)
		}
	}
	if puts.Load() != 3 || conns.Load() != 2 {
		t.Errorf("%d requests over %d connections", puts.Load(), conns.Load())
	}
	dieAt.Store(4)
	if _, err := c.Stop(t.Context(), wire.Stop{}); !errors.Is(err, client.ErrLost) || puts.Load() != 4 {
		t.Errorf("a stop is made again: %v, %d requests", err, puts.Load())
	}
	dieAt.Store(5)
	if _, err := c.Admit(t.Context(), "s", "3", wire.Input{Text: "t"}); !errors.Is(err, client.ErrLost) || puts.Load() != 5 {
		t.Errorf("a write on a fresh connection is made again: %v, %d requests", err, puts.Load())
	}
}

func TestFollow(t *testing.T) { // I-22, I-24
	var text, asked string
	dial := daemon(t, func(w http.ResponseWriter, r *http.Request) {
		asked = r.Header.Get("Last-Event-ID")
		if r.URL.Path != "/v1/sessions/s/events" {
			w.WriteHeader(404)
			fmt.Fprint(w, `{"code":"not_found","status":404,"title":"x"}`)
			return
		}
		speak(w, "")
		fmt.Fprint(w, text)
	})
	c := open(t, client.Options{Dial: dial})
	follow := func(from wire.Cursor, fn func(client.Frame) error) (frames []client.Frame, at wire.Cursor, err error) {
		at, err = c.Follow(t.Context(), "s", from, func(f client.Frame) error {
			frames = append(frames, f)
			return fn(f)
		})
		return frames, at, err
	}
	all := func(client.Frame) error { return nil }
	text = ": hello\n\n:\n\nid: g.5\nevent: note\ndata: {\"seq\":5,\ndata: \"kind\":\"note\"}\n\n" +
		"event: delta\ndata:{\"text\":\"t\"}\n\nevent: output\ndata: {\"text\":\"o\"}\n\nevent: later\ndata: {}\n\n" +
		"id: h.9\nevent: reset\ndata: {\"generation\":\"h\",\"last\":9}\n\nid: h.10\nevent: note\ndata: {\"se"
	frames, at, err := follow(wire.Cursor{Generation: "g", Seq: 4}, all)
	if !errors.Is(err, client.ErrLost) || asked != "g.4" {
		t.Errorf("the end of a stream: %v, asked after %q", err, asked)
	}
	if len(frames) != 4 || at != (wire.Cursor{Generation: "h", Seq: 9}) {
		t.Fatalf("frames %+v, cursor %v", frames, at)
	}
	if f := frames[0]; f.Event == nil || f.Event.Seq != 5 || f.Cursor.String() != "g.5" {
		t.Errorf("an event: %+v", f)
	}
	if frames[1].Delta == nil || frames[1].Cursor.String() != "g.5" || frames[2].Output == nil || frames[3].Reset == nil {
		t.Errorf("live events and a reset: %+v", frames[1:])
	}
	own := errors.New("own")
	for fail, want := range map[error]error{own: own, client.ErrEnough: nil, io.ErrUnexpectedEOF: io.ErrUnexpectedEOF} {
		_, at, err := follow(wire.Cursor{}, func(client.Frame) error { return fail })
		if err != want || at != (wire.Cursor{}) || asked != "" {
			t.Errorf("a callback that returns %v: %v, cursor %v", fail, err, at)
		}
	}
	text = "id: g.5\nevent: note\ndata: {\n\n"
	if _, _, err := follow(wire.Cursor{}, all); err == nil || errors.Is(err, client.ErrLost) {
		t.Errorf("data that is no JSON: %v", err)
	}
	text = "id: g.5\nevent: note\ndata: " + string(bytes.Repeat([]byte("a"), 17<<20))
	if _, _, err := follow(wire.Cursor{}, all); err == nil || errors.Is(err, client.ErrLost) {
		t.Errorf("an event without end: %v", err)
	}
	var e *wire.Error
	if _, err := c.Follow(t.Context(), "none", wire.Cursor{}, all); !errors.As(err, &e) || e.Code != wire.NotFound {
		t.Errorf("no such session: %v", err)
	}
}

// A stream without a sign of life counts as lost; one whose callback takes its time does not.
func TestSilence(t *testing.T) { // I-22
	hold := make(chan struct{})
	dial := daemon(t, func(w http.ResponseWriter, r *http.Request) {
		speak(w, "")
		fmt.Fprint(w, "id: g.1\nevent: note\ndata: {\"seq\":1}\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(hold)
	})
	c := open(t, client.Options{Dial: dial})
	c.SetSilence(500 * time.Millisecond)
	slow := false
	at, err := c.Follow(t.Context(), "s", wire.Cursor{}, func(client.Frame) error {
		ctx, cancel := context.WithTimeout(t.Context(), 1200*time.Millisecond)
		defer cancel()
		select {
		case <-hold:
			t.Error("the stream was given up while the callback worked")
		case <-ctx.Done():
		}
		slow = true
		return nil
	})
	if !errors.Is(err, client.ErrLost) || at.Seq != 1 || !slow {
		t.Errorf("a silent stream: %v, cursor %v", err, at)
	}
	<-hold
}
