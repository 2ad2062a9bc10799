package api_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"soma/client"
	"soma/internal/api"
	"soma/wire"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "ask-as-another-user" {
		askOnce(os.Args[2])
		return
	}
	goleak.VerifyTestMain(m)
}

const secret = "4f6e6520746f6b656e206f662074686520686f6d65"

// running is a real server on a real Unix socket.
type running struct {
	*world
	socket string
	log    *lockedBuffer
	client *client.Client
	stop   func() error          // ends Serve and returns its error
	endFor func(why error) error // the same for a reason
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func authorize(presented string) api.Access {
	switch presented {
	case secret:
		return api.Admin
	case "operator":
		return api.Operate
	case "reader":
		return api.Read
	}
	return api.Nobody
}

func options(w *world, log io.Writer) api.Options {
	return api.Options{
		Retention: keeper{},
		Sessions:  w, Processes: w, Events: w, Pykernels: w.kernels, Shells: shells{w}, Evidence: w, Daemon: w, Authorize: authorize, Build: "build-1",
		Log:     slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Metrics: func() (string, []byte, error) { return "text/plain; version=0.0.4", []byte("soma_up 1\n"), nil },
	}
}

func start(t *testing.T, change ...func(*api.Server)) *running {
	t.Helper()
	dir, err := os.MkdirTemp("", "api") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return startAt(t, newWorld(), filepath.Join(dir, "s"), change...)
}

func startAt(t *testing.T, w *world, socket string, change ...func(*api.Server)) *running {
	t.Helper()
	r := &running{world: w, socket: socket, log: new(lockedBuffer)}
	s, err := api.New(options(w, r.log))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range change {
		c(s)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	r.endFor = func(why error) error { cancel(why); return r.stop() }
	r.stop = sync.OnceValue(func() error { cancel(nil); return <-ended })
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
	r.client = r.newClient(t, client.Options{Build: "build-1"})
	return r
}

func (r *running) dial(ctx context.Context) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", r.socket)
}

func (r *running) newClient(t *testing.T, o client.Options) *client.Client {
	t.Helper()
	o.Dial = r.dial
	if o.Token == nil {
		o.Token = func() (string, error) { return secret, nil }
	}
	c, err := client.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func (r *running) open(t *testing.T, id string) wire.Session {
	t.Helper()
	s, err := r.client.OpenSession(t.Context(), id, wire.OpenSession{Workspace: "/tmp", Model: "script:tour"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// answer is what came back for one request on a connection of its own.
type answer struct {
	status int
	header http.Header
	body   string
}

// ask sends a request as it stands: a first line, header lines, and a body whose length is added.
func (r *running) ask(t *testing.T, first string, header []string, body string) answer {
	t.Helper()
	conn, err := r.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return askOn(t, conn, first, header, body)
}

func askOn(t *testing.T, conn net.Conn, first string, header []string, body string) answer {
	t.Helper()
	var text strings.Builder
	text.WriteString(first + " HTTP/1.1\r\nConnection: close\r\n")
	for _, line := range header {
		text.WriteString(line + "\r\n")
	}
	method, _, _ := strings.Cut(first, " ")
	if body != "" || method != "GET" {
		text.WriteString("Content-Length: " + itoa(len(body)) + "\r\n")
	}
	text.WriteString("\r\n" + body)
	if _, err := io.WriteString(conn, text.String()); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		t.Fatal(err)
	}
	got := answer{status: resp.StatusCode, header: resp.Header}
	if resp.Header.Get("Content-Type") == "text/event-stream" {
		return got // to close its body would be to read it to an end that does not come
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	got.body = string(all)
	return got
}
