package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"soma/client"
	"soma/internal/config"
	"soma/internal/store/postgres/postgrestest"
	"soma/wire"
)

// ownServer starts a server that a test may kill.
func ownServer(t *testing.T) (*postgrestest.Server, string) {
	t.Helper()
	s, err := postgrestest.Start(t.Context(), os.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	name, err := s.Create(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	return s, s.DSN(name) + " password=" + password
}

// door asks a daemon over TCP.
type door struct {
	t    *testing.T
	url  *url.URL
	http *http.Client
}

func (n *node) door() *door {
	t := n.c.t
	t.Helper()
	st, err := n.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(st.URL)
	if err != nil || u.Scheme != "https" {
		t.Fatalf("the daemon listens at %q, %v", st.URL, err)
	}
	pem, err := os.ReadFile(n.home.Certificate())
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	t.Cleanup(tr.CloseIdleConnections)
	return &door{t, u, &http.Client{Transport: tr, Timeout: 20 * time.Second}}
}

// ask makes a request with headers that alternate with their values, and returns the status with the error's code.
func (d *door) ask(method, path, body string, header ...string) (int, string) {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.t.Context(), method, d.url.String()+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
		} else {
			req.Header.Set(header[i], header[i+1])
		}
	}
	resp, err := d.http.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		d.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), `"code":"`)
	code, _, ok := strings.Cut(rest, `"`)
	if !ok {
		code = ""
	}
	return resp.StatusCode, code
}

// I-50, I-51, I-52, M-12: the listener makes the same checks as the socket, takes the home's own token and the peers' secret, and
// neither another home's token nor anything else. A peer works with sessions and does not rule the daemon; what it asks of one
// that another daemon holds is not handed on again.
func TestTCPListener(t *testing.T) {
	c := newCluster(t, 5*time.Second)
	a, b := c.start("a"), c.start("b")
	c.shared(a, b)
	own, err := a.home.ReadToken()
	if err != nil {
		t.Fatal(err)
	}
	other, err := b.home.ReadToken()
	if err != nil {
		t.Fatal(err)
	}
	peers := "Bearer " + c.peerSecret()
	model := c.script("echo", "name: echo\nsteps:\n  - say: hello\n")
	foreign := c.sessionAt(a, b, "foreign", wire.OpenSession{Workspace: c.work, Model: model, Keep: true})
	local := c.sessionAt(a, a, "local", wire.OpenSession{Workspace: c.work, Model: model, Keep: true})
	d := a.door()
	input := func(session string) string { return "/v1/sessions/" + session + "/inputs/i" }
	for _, one := range []struct {
		name, method, path, body string
		header                   []string
		status                   int
		code                     wire.Code
	}{
		{"the home's token", "GET", "/v1/status", "", []string{"Authorization", "Bearer " + own.Reveal()}, 200, ""},
		{"no token", "GET", "/v1/status", "", nil, 401, wire.Unauthorized},
		{"another home's token", "GET", "/v1/status", "", []string{"Authorization", "Bearer " + other.Reveal()}, 401, wire.Unauthorized},
		{"another secret", "GET", "/v1/status", "", []string{"Authorization", "Bearer " + strings.Repeat("0", 64)}, 401, wire.Unauthorized},
		{"part of the secret", "GET", "/v1/status", "", []string{"Authorization", peers[:len(peers)-1]}, 401, wire.Unauthorized},
		{"the secret", "GET", "/v1/status", "", []string{"Authorization", peers}, 200, ""},
		{"a peer rules", "POST", "/v1/daemon/stop", `{"kernels":true}`, []string{"Authorization", peers, "Content-Type", "application/json"}, 403, wire.Forbidden},
		{"another host", "GET", "/v1/status", "", []string{"Authorization", peers, "Host", "evil.example"}, 403, wire.ForbiddenHost},
		{"host before token", "GET", "/v1/status", "", []string{"Host", "evil.example"}, 403, wire.ForbiddenHost},
		{"another page", "GET", "/v1/status", "", []string{"Authorization", peers, "Origin", "https://evil.example"}, 403, wire.ForbiddenOrigin},
		{"a page in the clear", "GET", "/v1/status", "", []string{"Authorization", peers, "Origin", "http://" + d.url.Host}, 403, wire.ForbiddenOrigin},
		{"its own page", "GET", "/v1/status", "", []string{"Authorization", peers, "Origin", "https://" + d.url.Host}, 200, ""},
		{"another site", "GET", "/v1/status", "", []string{"Authorization", peers, "Sec-Fetch-Site", "cross-site"}, 403, wire.ForbiddenOrigin},
		{"no JSON", "PUT", input(local), `{"text":"x"}`, []string{"Authorization", peers, wire.HeaderHop, b.id}, 415, wire.UnsupportedMedia},
		{"a peer writes", "PUT", input(local), `{"text":"x"}`, []string{"Authorization", peers, wire.HeaderHop, b.id, "Content-Type", "application/json"}, 200, ""},
		{"a second hop", "PUT", input(foreign), `{"text":"x"}`, []string{"Authorization", peers, wire.HeaderHop, b.id, "Content-Type", "application/json"}, 503, wire.Unavailable},
		{"a second hop of a stream", "GET", "/v1/sessions/" + foreign + "/events", "", []string{"Authorization", peers, wire.HeaderHop, b.id}, 503, wire.Unavailable},
		{"a first hop", "PUT", input(foreign), `{"text":"x"}`, []string{"Authorization", "Bearer " + own.Reveal(), "Content-Type", "application/json"}, 200, ""},
		{"a refusal from elsewhere", "PUT", input(foreign), `{"text":"y"}`, []string{"Authorization", "Bearer " + own.Reveal(), "Content-Type", "application/json"}, 409, wire.Conflict},
	} {
		status, code := d.ask(one.method, one.path, one.body, one.header...)
		if status != one.status || code != string(one.code) {
			t.Errorf("%s: %d %s, want %d %s", one.name, status, code, one.status, one.code)
		}
	}
	if _, err := b.Input(t.Context(), foreign, "i"); err != nil {
		t.Error(err)
	}
	remote, err := client.New(client.Options{
		Address: d.url.Host, TLS: d.http.Transport.(*http.Transport).TLSClientConfig, Token: func() (string, error) { return own.Reveal(), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer remote.Close()
	if st, err := remote.Status(t.Context()); err != nil || st.Node != a.id {
		t.Errorf("the Go client over TLS: %+v, %v", st, err)
	}
	secrets(t, a, b)
}

// I-50: beyond the loopback a daemon speaks TLS, with any store; on the loopback its own store may be asked in the clear.
func TestBeyondTheLoopbackIsTLS(t *testing.T) {
	c := newCluster(t, 5*time.Second)
	a := c.start("a", "--listen", "0.0.0.0:0")
	d := a.door() // demands https
	if ip := d.url.Hostname(); ip == "0.0.0.0" {
		t.Errorf("the daemon tells others to reach it at %s", d.url)
	}
	token, err := a.home.ReadToken()
	if err != nil {
		t.Fatal(err)
	}
	if status, code := d.ask("GET", "/v1/status", "", "Authorization", "Bearer "+token.Reveal()); status != 200 {
		t.Errorf("over TLS: %d %s", status, code)
	}
	clear, err := http.NewRequestWithContext(t.Context(), "GET", "http://127.0.0.1:"+d.url.Port()+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultTransport.RoundTrip(clear)
	if err == nil {
		_ = resp.Body.Close()
		if resp.StatusCode == 200 {
			t.Error("it answers in the clear")
		}
	}
	// A store of its own: in the clear on the loopback, with TLS beyond it.
	c.dsn = ""
	s := c.start("s", "--listen", "127.0.0.1:0")
	if st, err := s.Status(t.Context()); err != nil || !strings.HasPrefix(st.URL, "http://127.0.0.1:") || st.Node != "" || st.Nodes != nil {
		t.Errorf("%q, node %q, %v", st.URL, st.Node, err)
	}
	e := c.start("e", "--listen", "0.0.0.0:0")
	if st, err := e.Status(t.Context()); err != nil || !strings.HasPrefix(st.URL, "https://") {
		t.Errorf("%q, %v", st.URL, err)
	}
}

// N-36, I-54: a password in the arguments is refused before anything starts, with what to do, and is not repeated.
func TestPasswordInTheArguments(t *testing.T) {
	dir := t.TempDir()
	home, err := config.HomeAt(filepath.Join(dir, "home"))
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, dir: dir, work: dir, slots: 8}
	n := &node{c: c, home: home, log: &log{}}
	for _, dsn := range []string{"postgres://me:" + password + "@127.0.0.1:1/soma", "host=127.0.0.1 password=" + password} {
		out, err := n.soma("serve", "--store", dsn)
		if err == nil || !strings.Contains(out, "PGPASSFILE") || !strings.Contains(out, "SOMA_STORE") || strings.Contains(out, password) {
			t.Errorf("%v: %s", err, out)
		}
	}
	if _, err := os.Stat(home.Socket()); err == nil {
		t.Error("something was started")
	}
	// One that cannot be reached is named without its password.
	c.dsn = "postgres://me:" + password + "@127.0.0.1:1/soma?connect_timeout=2"
	out, err := n.soma("serve", "--background")
	if err == nil || !strings.Contains(out, "postgres://me@127.0.0.1:1/soma") || strings.Contains(out, password) {
		t.Errorf("%v: %s", err, out)
	}
}
