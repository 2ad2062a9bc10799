package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"soma/internal/config"
	"soma/wire"
)

// ask sends one request as it is and returns the answer's status and error.
func (p *place) ask(method, path, body string, change ...func(*http.Request)) (int, wire.Error) {
	p.t.Helper()
	token, err := p.home.ReadToken()
	if err != nil {
		p.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(p.t.Context(), method, "http://soma"+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token.Reveal())
	req.Header.Set("Content-Type", "application/json")
	for _, c := range change {
		c(req)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return config.DialSocket(ctx, p.home.Socket())
	}}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	var e wire.Error
	if err := json.Unmarshal(text, &e); err != nil && resp.StatusCode != 200 {
		p.t.Fatalf("the answer %q is no error: %v", text, err)
	}
	return resp.StatusCode, e
}

// Requests that are wrong are refused, each with its code and status, and nothing comes of them.
func TestRequests(t *testing.T) { // I-20, I-21, I-50, I-51
	p := newPlace(t)
	p.write("s.yaml", "steps:\n  - say: Hello.\n")
	p.run("run", "--keep", "--model", "script:"+filepath.Join(p.dir, "s.yaml"), "x").ends(0)
	c := p.client()
	process, err := c.Process(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	before, err := c.Session(t.Context(), process.Session)
	if err != nil {
		t.Fatal(err)
	}
	other := newSecret(t)
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	input := "/v1/sessions/" + process.Session + "/inputs/"
	text := func(size int) string {
		const frame = `{"text":""}`
		return fmt.Sprintf(`{"text":%q}`, strings.Repeat("x", size-len(frame)))
	}
	file := p.write("file", "")
	for name, r := range map[string]struct {
		status int
		code   wire.Code
		method string
		path   string
		body   string
		change func(*http.Request)
	}{
		"64 KiB + 1":                 {413, wire.TooLarge, "PUT", input + "a", text(64<<10 + 1), nil},
		"invalid UTF-8":              {400, wire.BadRequest, "PUT", input + "b", "{\"text\":\"\xff\"}", nil},
		"half a body":                {400, wire.BadRequest, "PUT", input + "c", `{"text":`, nil},
		"an unknown field":           {400, wire.BadRequest, "PUT", input + "d", `{"text":"x","txet":"y"}`, nil},
		"an empty input":             {400, wire.BadRequest, "PUT", input + "e", `{"text":""}`, nil},
		"another home's token":       {401, wire.Unauthorized, "PUT", input + "f", text(20), header("Authorization", "Bearer "+other)},
		"no token":                   {401, wire.Unauthorized, "PUT", input + "g", text(20), func(r *http.Request) { r.Header.Del("Authorization") }},
		"a foreign host":             {403, wire.ForbiddenHost, "PUT", input + "h", text(20), func(r *http.Request) { r.Host = "example.org" }},
		"a foreign origin":           {403, wire.ForbiddenOrigin, "PUT", input + "i", text(20), header("Origin", "http://example.org")},
		"a foreign site":             {403, wire.ForbiddenOrigin, "GET", "/v1/status", "", header("Sec-Fetch-Site", "cross-site")},
		"another media type":         {415, wire.UnsupportedMedia, "PUT", input + "j", text(20), header("Content-Type", "text/plain")},
		"a session that is not":      {404, wire.NotFound, "PUT", "/v1/sessions/none/inputs/k", text(20), nil},
		"an invalid id":              {400, wire.BadRequest, "PUT", input + "%00", text(20), nil},
		"a workspace that is not":    {422, wire.Unprocessable, "PUT", "/v1/sessions/l", `{"workspace":"/none","model":"script:tour"}`, nil},
		"a workspace that is a file": {422, wire.Unprocessable, "PUT", "/v1/sessions/m", fmt.Sprintf(`{"workspace":%q,"model":"script:tour"}`, file), nil},
		"a relative workspace":       {400, wire.BadRequest, "PUT", "/v1/sessions/n", `{"workspace":"here","model":"script:tour"}`, nil},
		"a model that is not":        {422, wire.Unprocessable, "PUT", "/v1/sessions/o", fmt.Sprintf(`{"workspace":%q,"model":"nope"}`, p.dir), nil},
		"a script that is not":       {422, wire.BadFile, "PUT", "/v1/sessions/p", fmt.Sprintf(`{"workspace":%q,"model":"script:/none.yaml"}`, p.dir), nil},
		"a python that is not":       {422, wire.NoPython, "PUT", "/v1/sessions/q", fmt.Sprintf(`{"workspace":%q,"model":"script:tour","python":"/none"}`, p.dir), nil},
	} {
		change := r.change
		if change == nil {
			change = func(*http.Request) {}
		}
		status, e := p.ask(r.method, r.path, r.body, change)
		if status != r.status || e.Code != r.code || e.Status != r.status || e.Title == "" || strings.Contains(e.Title+e.Detail, "\n") {
			t.Errorf("%s: %d, %+v, want %d %s", name, status, e, r.status, r.code)
		}
		if secret := strings.Contains(fmt.Sprint(e), other); secret {
			t.Errorf("%s: the answer shows the token", name)
		}
	}
	after, err := c.Session(t.Context(), process.Session)
	if err != nil || after != before {
		t.Errorf("something came of it: %+v, then %+v (%v)", before, after, err)
	}
	if status, e := p.ask("PUT", input+"z", text(64<<10)); status != 200 {
		t.Errorf("64 KiB: %d, %+v", status, e)
	}
}

// newSecret is the token of another home.
func newSecret(t *testing.T) string {
	t.Helper()
	home, err := config.HomeAt(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := home.EnsureToken(); err != nil {
		t.Fatal(err)
	}
	token, err := home.ReadToken()
	if err != nil {
		t.Fatal(err)
	}
	return token.Reveal()
}

// Tasks that cannot be taken are refused before a daemon is started, and send refuses the same.
func TestTasks(t *testing.T) { // I-14, I-15
	p := newPlace(t)
	const tooLong = `cannot take the text: it is longer than 64512 bytes; give the name of a file in it instead`
	const notUTF8 = `cannot take the text: it is not UTF-8; convert it to UTF-8`
	const empty = `cannot take the text: it is empty`
	long := strings.Repeat("a task\n", 10<<10) // 70 KiB
	latin1 := p.write("latin1", "caf\xe9\n")
	for _, c := range []struct {
		in   string
		args []string
		code int
		says string
	}{
		{long, []string{"run", "-"}, 65, tooLong},
		{"", []string{"run", "-f", p.write("long", long)}, 65, tooLong},
		{"\xff", []string{"run", "-"}, 65, notUTF8},
		{"", []string{"run", "caf\xe9"}, 65, notUTF8},
		{"", []string{"run", "-f", latin1}, 65, notUTF8},
		{"", []string{"run", ""}, 64, empty},
		{" \n", []string{"run", "-"}, 64, empty},
		{long, []string{"send", "1", "-"}, 65, tooLong},
		{"", []string{"send", "1", "caf\xe9"}, 65, notUTF8},
		{"", []string{"send", "1", ""}, 64, empty},
		{"", []string{"run", "-f", "none"}, 65, `cannot read the text: open none: no such file or directory`},
		{"", []string{"py", latin1}, 65, notUTF8},
	} {
		p.in = c.in
		p.run(c.args...).ends(c.code).says(c.says)
	}
	p.run("status").ends(69)
}

// A NUL byte in a task is a character like others; in code it is python's own error.
func TestNULBytes(t *testing.T) {
	p := newPlace(t)
	p.in = "be\x00fore"
	p.write("s.yaml", "steps:\n  - say: 'You said {{ len (index .Inputs 0) }} bytes.'\n")
	if out := p.run("run", "--model", "script:s.yaml", "-").ends(0).out; !strings.Contains(out, "You said 7 bytes.") {
		t.Errorf("it printed %q", out)
	}
	messages, err := p.client().Messages(t.Context(), 1, 0, 10)
	if err != nil || len(messages.Items) != 2 || messages.Items[0].Message.Text != p.in {
		t.Errorf("messages %+v (%v)", messages, err)
	}
	p.run("py", p.write("nul.py", "print('a')\n\x00")).ends(1).fails("SyntaxError: source code string cannot contain null bytes")
	p.run("py", "-c", "1 + 1").ends(0).prints("2\n")
}

// Who shows no credential over TCP holds 256 connections and no more: the oldest makes room, and whoever shows one stays and is served.
func TestStrangers(t *testing.T) { // I-50
	p := newPlace(t)
	d := p.begin("serve", "--listen", "127.0.0.1:0")
	d.says(`msg=serving `)
	s, err := p.client().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	token, err := p.home.ReadToken()
	if err != nil {
		t.Fatal(err)
	}
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", at.Host)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	ask := func(conn net.Conn, header string) int {
		t.Helper()
		if _, err := io.WriteString(conn, "GET /v1/status HTTP/1.1\r\nHost: "+at.Host+"\r\n"+header+"\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode
	}
	owner := "Authorization: Bearer " + token.Reveal() + "\r\n"
	known := dial()
	if status := ask(known, owner); status != 200 {
		t.Fatalf("with the token: %d", status)
	}
	var silent []net.Conn
	for range 256 {
		silent = append(silent, dial())
	}
	if status := ask(silent[0], ""); status != 401 { // it counts still
		t.Errorf("without a token: %d", status)
	}
	dial()
	if _, err := silent[0].Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the oldest: %v", err)
	}
	for _, conn := range []net.Conn{known, silent[255], dial()} {
		if status := ask(conn, owner); status != 200 {
			t.Errorf("with the token: %d", status)
		}
	}
	p.run("stop").ends(0)
	d.ends(0)
}
