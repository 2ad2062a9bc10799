package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"soma/client"
	"soma/internal/api"
	"soma/internal/config"
	"soma/wire"
)

func itoa(n int) string { return strconv.Itoa(n) }

func (a answer) code(t *testing.T) wire.Code {
	t.Helper()
	if a.status == http.StatusOK {
		return ""
	}
	if kind := a.header.Get("Content-Type"); kind != "application/problem+json" {
		t.Fatalf("an error as %q: %s", kind, a.body)
	}
	var e wire.Error
	if err := json.Unmarshal([]byte(a.body), &e); err != nil {
		t.Fatal(err)
	}
	if e.Status != a.status || e.Status != e.Code.Status() {
		t.Errorf("status %d, in the body %d, of the code %d", a.status, e.Status, e.Code.Status())
	}
	return e.Code
}

const (
	good   = "Authorization: Bearer " + secret
	isJSON = "Content-Type: application/json"
)

// A request that everything is wrong with meets the checks one after the other as it is mended.
func TestOrderOfChecks(t *testing.T) { // I-51
	r := start(t)
	r.open(t, "s")
	for _, first := range []string{
		"PUT /v1/sessions/s/inputs/i", "POST /v1/daemon/stop", "GET /v1/status", "GET /v1/sessions/s/events", "GET /v1/events", "GET /nowhere",
	} {
		write := !strings.HasPrefix(first, "GET")
		header := map[string]string{
			"Host": "evil.example", "Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site",
			"Authorization": "Bearer wrong", "Soma-Wire": "999", "Content-Type": "text/plain",
		}
		body := ""
		if write {
			body = "\xff"
		}
		expect := func(want wire.Code) {
			t.Helper()
			var lines []string
			for name, value := range header {
				lines = append(lines, name+": "+value)
			}
			if got := r.ask(t, first, lines, body).code(t); got != want {
				t.Errorf("%s with %v: %q, want %q", first, header, got, want)
			}
		}
		expect(wire.ForbiddenHost)
		header["Host"] = "soma"
		expect(wire.ForbiddenOrigin)
		delete(header, "Origin")
		expect(wire.ForbiddenOrigin)
		header["Sec-Fetch-Site"] = "same-site"
		expect(wire.ForbiddenOrigin)
		header["Sec-Fetch-Site"] = "none"
		expect(wire.Unauthorized)
		delete(header, "Authorization")
		expect(wire.Unauthorized)
		header["Authorization"] = "Bearer reader"
		expect(wire.WireVersion)
		header["Soma-Wire"] = itoa(wire.Version)
		switch {
		case first == "GET /nowhere":
			expect(wire.NotFound)
		case write:
			expect(wire.Forbidden)
			header["Authorization"] = "Bearer " + secret
			expect(wire.UnsupportedMedia)
			delete(header, "Content-Type")
			expect(wire.UnsupportedMedia)
			header["Content-Type"] = "application/json; charset=utf-8"
			expect(wire.BadRequest)
			body = `{}`
			if first == "POST /v1/daemon/stop" {
				expect("")
			}
		default:
			expect("")
		}
	}
}

// A request that takes no body needs no type of one; with a body it is refused.
func TestNoTypeWithoutABody(t *testing.T) { // I-51
	r := start(t)
	r.open(t, "s")
	cell, err := r.client.RunCell(t.Context(), "s", "c", wire.RunCell{Code: "1"})
	if err != nil {
		t.Fatal(err)
	}
	for _, first := range []string{"PUT /v1/cells/" + cell.ID + "/interrupt", "DELETE /v1/sessions/s"} {
		if got := r.ask(t, first, []string{"Host: soma", good}, "{}").code(t); got != wire.BadRequest {
			t.Errorf("%s with a body: %q", first, got)
		}
		if got := r.ask(t, first, []string{"Host: soma", good}, "").code(t); got != "" {
			t.Errorf("%s: %q", first, got)
		}
	}
}

func TestHostsAndOrigins(t *testing.T) { // I-51
	r := start(t)
	for host, want := range map[string]wire.Code{
		"soma": "", "soma:": "", "localhost": "", "LOCALHOST": "", "127.0.0.1": "", "127.0.0.1:": "", "[::1]": "", "[::1]:": "",
		"": wire.ForbiddenHost, "soma.example": wire.ForbiddenHost, "localhost.evil": wire.ForbiddenHost,
		"localhost:80": wire.ForbiddenHost, "127.0.0.2": wire.ForbiddenHost, "0.0.0.0": wire.ForbiddenHost, "::1": wire.ForbiddenHost,
	} {
		if got := r.ask(t, "GET /v1/status", []string{"Host: " + host, good}, "").code(t); got != want {
			t.Errorf("Host %q: %q, want %q", host, got, want)
		}
		if got := r.ask(t, "GET /healthz", []string{"Host: " + host}, "").code(t); got != want {
			t.Errorf("Host %q at /healthz: %q, want %q", host, got, want)
		}
	}
	for _, origin := range []string{"null", "http://evil.example", "https://soma", "http://soma:80", "http://localhost", ""} {
		if got := r.ask(t, "GET /v1/status", []string{"Host: soma", good, "Origin: " + origin}, "").code(t); got != wire.ForbiddenOrigin {
			t.Errorf("Origin %q: %q", origin, got)
		}
	}
	for site, want := range map[string]wire.Code{
		"same-origin": "", "none": "", "cross-site": wire.ForbiddenOrigin, "same-site": wire.ForbiddenOrigin, "": wire.ForbiddenOrigin, "x": wire.ForbiddenOrigin,
	} {
		if got := r.ask(t, "GET /v1/status", []string{"Host: soma", good, "Sec-Fetch-Site: " + site}, "").code(t); got != want {
			t.Errorf("Sec-Fetch-Site %q: %q, want %q", site, got, want)
		}
	}
	if got := r.ask(t, "GET /v1/status", []string{"Host: soma", good, "Origin: http://soma"}, "").code(t); got != "" {
		t.Errorf("the own origin: %q", got)
	}
	answer := r.ask(t, "GET /v1/status", []string{"Host: soma", good, "Origin: http://soma"}, "")
	for name := range answer.header {
		if strings.HasPrefix(name, "Access-Control-") {
			t.Errorf("CORS is open: %s", name)
		}
	}
}

// A loopback TCP listener takes its own port only, and one that others can reach is refused.
func TestTCP(t *testing.T) { // I-50, I-51
	s, err := api.New(options(newWorld(), io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	everywhere, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(t.Context(), everywhere); !errors.Is(err, api.ErrExposed) {
		t.Fatalf("a listener on all addresses: %v", err)
	}
	if _, err := everywhere.Accept(); err == nil {
		t.Error("the refused listener still listens")
	}

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	c, err := client.New(client.Options{Address: l.Addr().String(), Token: func() (string, error) { return secret, nil }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Status(t.Context()); err != nil {
		t.Error(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	for host, want := range map[string]wire.Code{
		fmt.Sprintf("localhost:%d", port): "", fmt.Sprintf("[::1]:%d", port): "",
		"localhost": wire.ForbiddenHost, fmt.Sprintf("localhost:%d", port+1): wire.ForbiddenHost, "soma": wire.ForbiddenHost,
		fmt.Sprintf("rebound.example:%d", port): wire.ForbiddenHost,
	} {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if got := askOn(t, conn, "GET /v1/status", []string{"Host: " + host, good}, "").code(t); got != want {
			t.Errorf("Host %q: %q, want %q", host, got, want)
		}
		conn.Close()
	}
	c.Close()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// The token is that of the home at this moment: one of another home is refused, and a rotated one at once.
func TestTokenOfThisHome(t *testing.T) { // I-50
	var homes [2]config.Home
	for i := range homes {
		h, err := config.HomeAt(filepath.Join(t.TempDir(), "home"))
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Create(); err != nil {
			t.Fatal(err)
		}
		if err := h.EnsureToken(); err != nil {
			t.Fatal(err)
		}
		homes[i] = h
	}
	checker := homes[0].TokenChecker()
	r := start(t, func(s *api.Server) {
		s.Authorize = func(presented string) api.Access {
			if ok, err := checker.Check(presented); err != nil || !ok {
				return api.Nobody
			}
			return api.Admin
		}
	})
	ask := func(h config.Home) error {
		c := r.newClient(t, client.Options{Token: func() (string, error) {
			text, err := h.ReadToken()
			return text.Reveal(), err
		}})
		_, err := c.Status(t.Context())
		return err
	}
	if err := ask(homes[0]); err != nil {
		t.Fatal(err)
	}
	var refused *wire.Error
	if err := ask(homes[1]); !errors.As(err, &refused) || refused.Code != wire.Unauthorized {
		t.Fatalf("the token of another home: %v", err)
	}
	old, err := homes[0].ReadToken()
	if err != nil {
		t.Fatal(err)
	}
	if err := homes[0].RotateToken(); err != nil {
		t.Fatal(err)
	}
	if got := r.ask(t, "GET /v1/status", []string{"Host: soma", "Authorization: Bearer " + old.Reveal()}, "").code(t); got != wire.Unauthorized {
		t.Errorf("the old token: %q", got)
	}
	if err := ask(homes[0]); err != nil {
		t.Errorf("the new token: %v", err)
	}
	if err := os.Remove(homes[0].TokenFile()); err != nil {
		t.Fatal(err)
	}
	for _, header := range []string{
		"Authorization: Bearer " + old.Reveal(), "Authorization: Bearer ", "Authorization: Bearer", "Authorization: " + secret,
		"Authorization: Basic " + secret, "X-Nothing: 1", "Cookie: token=" + secret,
	} {
		if got := r.ask(t, "GET /v1/status", []string{"Host: soma", header}, "").code(t); got != wire.Unauthorized {
			t.Errorf("without a token file, %q: %q", header, got)
		}
	}
	if got := r.ask(t, "GET /v1/status", []string{"Host: soma", good, good}, "").code(t); got != wire.Unauthorized {
		t.Errorf("two credentials: %q", got)
	}
}

// Another user who can open the socket, and even has the token, is refused.
func TestPeer(t *testing.T) { // I-50
	if os.Geteuid() != 0 {
		r := start(t, func(s *api.Server) { s.SetUID(uint32(os.Geteuid()) + 1) })
		if got := r.ask(t, "GET /healthz", []string{"Host: soma", good}, "").code(t); got != wire.Forbidden {
			t.Errorf("a peer of another user: %q", got)
		}
		return
	}
	r := start(t)
	if got := r.ask(t, "GET /healthz", []string{"Host: soma"}, "").code(t); got != "" {
		t.Errorf("root: %q", got)
	}
	for path, mode := range map[string]os.FileMode{filepath.Dir(r.socket): 0o755, r.socket: 0o777} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	// A program that everybody may run: the test binary lies where only its owner looks.
	program := filepath.Join(filepath.Dir(r.socket), "ask")
	text, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, text, 0o755); err != nil {
		t.Fatal(err)
	}
	asker := exec.CommandContext(t.Context(), program, "ask-as-another-user", r.socket)
	asker.Dir = "/"
	asker.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := asker.CombinedOutput()
	if err != nil || !strings.Contains(string(out), `"code":"forbidden"`) {
		t.Errorf("a peer of another user: %v: %s", err, out)
	}
	same := start(t, func(s *api.Server) { s.SetUID(65534) })
	if got := same.ask(t, "GET /healthz", []string{"Host: soma"}, "").code(t); got != "" {
		t.Errorf("root at another user's daemon: %q", got)
	}
}

// askOnce is the OS process of another user in TestPeer.
func askOnce(socket string) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Fprintf(conn, "GET /v1/status HTTP/1.1\r\nHost: soma\r\n%s\r\nConnection: close\r\n\r\n", good)
	if _, err := bufio.NewReader(conn).WriteTo(os.Stdout); err != nil {
		os.Exit(1)
	}
}

func TestAccessLevels(t *testing.T) { // I-52
	r := start(t)
	r.open(t, "s")
	tokens := map[api.Access]string{api.Read: "reader", api.Operate: "operator", api.Admin: secret}
	for _, route := range api.Routes() {
		path := strings.NewReplacer("{session}", "s", "{client}", "c", "{cell}", "x", "{pid}", "1").Replace(route.Path)
		for level, bearer := range tokens {
			header := []string{"Host: soma", "Authorization: Bearer " + bearer, isJSON}
			got := r.ask(t, route.Method+" "+path, header, "").code(t)
			if refused := got == wire.Forbidden; refused != (level < route.Access) {
				t.Errorf("%s %s needs %s; the answer to %s: %q", route.Method, route.Path, route.Access, level, got)
			}
		}
	}
}

// The token shows up in no log and no answer, whatever goes wrong.
func TestTokenIsNowhere(t *testing.T) { // I-51, I-54
	r := start(t)
	r.before(func(_ context.Context, method string) error {
		switch method {
		case "Status":
			return errors.New("cannot open /secret/path")
		case "Sessions":
			panic("at the disco")
		}
		return nil
	})
	var all strings.Builder
	for _, first := range []string{
		"GET /v1/status", "GET /v1/sessions", "GET /v1/status?token=" + secret, "GET /v1/status?" + secret + "=1", "GET /" + secret,
		"PUT /v1/sessions/s", "GET /v1/sessions/" + strings.Repeat(secret, 10), "GET /v1/sessions/%00" + secret,
	} {
		for _, header := range [][]string{{"Host: soma", good, isJSON}, {"Host: " + secret + ".example", good}, {"Host: soma", good + "x"}} {
			a := r.ask(t, first, header, "")
			all.WriteString(a.body)
			for name, values := range a.header {
				all.WriteString(name + strings.Join(values, " "))
			}
		}
	}
	for _, text := range []string{all.String(), r.log.String()} {
		if strings.Contains(text, secret) {
			t.Errorf("the token is in: %s", text)
		}
	}
	if strings.Contains(all.String(), "/secret/path") || strings.Contains(all.String(), "disco") {
		t.Error("an answer tells what went wrong inside")
	}
	if !strings.Contains(r.log.String(), "/secret/path") || !strings.Contains(r.log.String(), "disco") {
		t.Errorf("the log does not tell what went wrong inside: %s", r.log)
	}
}

func TestPanicAndInternal(t *testing.T) { // I-15, I-21
	r := start(t)
	r.before(func(_ context.Context, method string) error {
		if method == "Status" {
			panic("at the disco")
		}
		return nil
	})
	_, err := r.client.Status(t.Context())
	var e *wire.Error
	if !errors.As(err, &e) || e.Code != wire.Internal {
		t.Fatalf("a panic: %v", err)
	}
	if _, err := r.client.Models(t.Context()); err != nil {
		t.Errorf("after a panic: %v", err)
	}
}

// Every code goes through as it is, with its status, and comes out of the client as the same error.
func TestErrorCodes(t *testing.T) { // I-15, I-21
	r := start(t)
	codes := map[wire.Code]int{
		wire.BadRequest: 400, wire.Unauthorized: 401, wire.ForbiddenHost: 403, wire.ForbiddenOrigin: 403, wire.Forbidden: 403,
		wire.NotFound: 404, wire.MethodNotAllowed: 405, wire.Conflict: 409, wire.ProcessEnded: 409, wire.SessionClosed: 409,
		wire.TooLarge: 413, wire.UnsupportedMedia: 415, wire.Unprocessable: 422, wire.NoModel: 422, wire.NoPython: 422,
		wire.WireVersion: 426, wire.Busy: 429, wire.Stopping: 503,
	}
	for code, status := range codes {
		r.before(func(context.Context, string) error {
			return fmt.Errorf("wrapped: %w", wire.Errorf(code, "what %s", code).Do("do this"))
		})
		_, err := r.client.Status(t.Context())
		var e *wire.Error
		if !errors.As(err, &e) || *e != (wire.Error{Code: code, Status: status, Title: "what " + string(code), Detail: "do this"}) {
			t.Errorf("%s: %#v", code, err)
		}
	}
	r.before(func(context.Context, string) error { return wire.Errorf(wire.Internal, "inner words") })
	_, err := r.client.Status(t.Context())
	var e *wire.Error
	if !errors.As(err, &e) || e.Code != wire.Internal || e.Status != 500 || strings.Contains(e.Error(), "inner words") {
		t.Errorf("internal: %#v", err)
	}
}

// I-15, N-36: what the rooms behind the API know to pass is no failure of the daemon's own; all else stays one.
func TestRefusalsOfRooms(t *testing.T) {
	passes := errors.New("passes")
	r := start(t, func(s *api.Server) {
		s.Refusal = func(err error) *wire.Error {
			if errors.Is(err, passes) {
				return wire.Errorf(wire.NoModel, "not now").Do("wait")
			}
			return nil
		}
	})
	for inner, code := range map[error]wire.Code{passes: wire.NoModel, errors.New("broken"): wire.Internal} {
		r.before(func(context.Context, string) error { return fmt.Errorf("cannot read: %w", inner) })
		_, err := r.client.Status(t.Context())
		var e *wire.Error
		if !errors.As(err, &e) || e.Code != code || e.Status != code.Status() {
			t.Errorf("%v: %#v", inner, err)
		}
	}
}

func TestDeadlineOfAHandler(t *testing.T) {
	r := start(t, func(s *api.Server) { s.SetTimeout(20 * time.Millisecond) })
	r.before(func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() })
	_, err := r.client.Status(t.Context())
	var e *wire.Error
	if !errors.As(err, &e) || e.Code != wire.Busy {
		t.Fatalf("a handler that waits for ever: %v", err)
	}
}

func TestBadInput(t *testing.T) { // I-21
	r := start(t)
	r.open(t, "s")
	input := func(size int) string { // a body of exactly size bytes
		frame := `{"text":""}`
		return `{"text":"` + strings.Repeat("a", size-len(frame)) + `"}`
	}
	const put = "PUT /v1/sessions/s/inputs/"
	for name, c := range map[string]struct {
		first, body string
		want        wire.Code
	}{
		"64 KiB":                {put + "a", input(wire.MaxBody), ""},
		"64 KiB + 1":            {put + "b", input(wire.MaxBody + 1), wire.TooLarge},
		"many times 64 KiB":     {put + "b", input(4 * wire.MaxBody), wire.TooLarge},
		"code of 2 MiB + 1":     {"PUT /v1/sessions/s/cells/c", strings.Replace(input(wire.MaxCellBody+1), "text", "code", 1), wire.TooLarge},
		"code of 1 MiB":         {"PUT /v1/sessions/s/cells/d", strings.Replace(input(1<<20), "text", "code", 1), ""},
		"invalid UTF-8":         {put + "c", "{\"text\":\"a\xff\"}", wire.BadRequest},
		"UTF-8 cut in two":      {put + "c", "{\"text\":\"\xe2\x82\"}", wire.BadRequest},
		"an unknown field":      {put + "c", `{"text":"a","txt":"b"}`, wire.BadRequest},
		"something behind":      {put + "c", `{"text":"a"}{}`, wire.BadRequest},
		"broken JSON":           {put + "c", `{"text":`, wire.BadRequest},
		"an array":              {put + "c", `[]`, wire.BadRequest},
		"null":                  {put + "c", `null`, wire.BadRequest},
		"no body":               {put + "c", ``, wire.BadRequest},
		"a number as text":      {put + "c", `{"text":1}`, wire.BadRequest},
		"no text":               {put + "c", `{"text":" \n"}`, wire.BadRequest},
		"an unknown mode":       {put + "c", `{"text":"a","mode":"now"}`, wire.BadRequest},
		"an id with a slash":    {put + "a%2Fb", `{"text":"a"}`, wire.BadRequest},
		"an id of 129":          {put + strings.Repeat("a", 129), `{"text":"a"}`, wire.BadRequest},
		"an id of 128":          {put + strings.Repeat("a", 128), `{"text":"a"}`, ""},
		"a relative workspace":  {"PUT /v1/sessions/x", `{"workspace":"here"}`, wire.BadRequest},
		"a NUL in a workspace":  {"PUT /v1/sessions/x", `{"workspace":"/a\u0000"}`, wire.BadRequest},
		"an unknown kind":       {"PUT /v1/sessions/x", `{"workspace":"/","kind":"job"}`, wire.BadRequest},
		"a long timeout":        {"PUT /v1/sessions/s/cells/e", `{"code":"1","timeout_ms":3600001}`, wire.BadRequest},
		"a negative timeout":    {"PUT /v1/sessions/s/cells/e", `{"code":"1","timeout_ms":-1}`, wire.BadRequest},
		"no code":               {"PUT /v1/sessions/s/cells/e", `{"code":""}`, wire.BadRequest},
		"an unknown signal":     {"PUT /v1/processes/1/signals/a", `{"signal":"stop"}`, wire.BadRequest},
		"a pid of 0":            {"GET /v1/processes/0", "", wire.BadRequest},
		"a pid that is a word":  {"GET /v1/processes/one", "", wire.BadRequest},
		"a pid that is none":    {"GET /v1/processes/77", "", wire.NotFound},
		"a limit of 0":          {"GET /v1/processes?limit=0", "", wire.BadRequest},
		"a limit of 1001":       {"GET /v1/processes?limit=1001", "", wire.BadRequest},
		"a limit twice":         {"GET /v1/processes?limit=1&limit=2", "", wire.BadRequest},
		"an unknown parameter":  {"GET /v1/processes?lim=1", "", wire.BadRequest},
		"a broken query":        {"GET /v1/processes?limit=%zz", "", wire.BadRequest},
		"no UTF-8 in a query":   {"GET /v1/processes?workspace=%ff", "", wire.BadRequest},
		"all=maybe":             {"GET /v1/processes?all=maybe", "", wire.BadRequest},
		"a wait of a day":       {"GET /v1/processes/1?wait=24h", "", wire.BadRequest},
		"a cursor that is none": {"GET /v1/sessions/s/events?after=x", "", wire.BadRequest},
		"a stream of nothing":   {"GET /v1/sessions/none/events", "", wire.NotFound},
		"a body where none is":  {"GET /v1/status", "{}", wire.BadRequest},
		"another method":        {"PATCH /v1/status", "", wire.MethodNotAllowed},
		"HEAD of a stream":      {"HEAD /v1/events", "", wire.MethodNotAllowed},
		"a path to clean":       {"GET /v1//status", "", wire.NotFound},
		"a path with dots":      {"GET /v1/x/../status", "", wire.NotFound},
		"a slash at the end":    {"GET /v1/status/", "", wire.NotFound},
		"OPTIONS of all":        {"OPTIONS *", "", wire.NotFound},
	} {
		a := r.ask(t, c.first, []string{"Host: soma", good, isJSON}, c.body)
		if strings.HasPrefix(c.first, "HEAD") {
			if a.status != c.want.Status() {
				t.Errorf("%s: %d", name, a.status)
			}
			continue
		}
		if got := a.code(t); got != c.want {
			t.Errorf("%s: %q, want %q: %s", name, got, c.want, a.body)
		}
	}
	if _, err := r.client.Status(t.Context()); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	r.world.mu.Lock()
	defer r.world.mu.Unlock()
	for key := range r.world.bodies {
		if !slices.Contains([]string{"session s", "input s a", "cell s d", "input s " + strings.Repeat("a", 128)}, key) {
			t.Errorf("a refused request has written %q", key)
		}
	}
}

// A body that is announced and comes in part holds its request no longer than the limit, nor at all once its sender is gone.
func TestBodyThatNeverComes(t *testing.T) {
	for name, c := range map[string]struct {
		limit time.Duration
		after func(*net.UnixConn) error
	}{
		"the sender waits": {50 * time.Millisecond, func(*net.UnixConn) error { return nil }},
		"the sender ends":  {time.Minute, (*net.UnixConn).CloseWrite},
	} {
		r := start(t, func(s *api.Server) { s.SetReading(c.limit) })
		conn, err := r.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "PUT /v1/sessions/s HTTP/1.1\r\nHost: soma\r\n%s\r\n%s\r\nContent-Length: 20\r\n\r\n{\"work", good, isJSON)
		if err := c.after(conn.(*net.UnixConn)); err != nil {
			t.Fatal(err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if resp.StatusCode != wire.BadRequest.Status() {
			t.Errorf("%s: %d", name, resp.StatusCode)
		}
		conn.Close()
	}
}

// Other daemons have half of the streams at most; a client finds room beside them.
func TestTooManyListeners(t *testing.T) { // I-22
	r := start(t, func(s *api.Server) { s.SetStreams(4) })
	hop := wire.HeaderHop + ": other"
	first := r.read(t, "/v1/events", hop)
	r.read(t, "/v1/events", hop)
	if got := r.ask(t, "GET /v1/events", []string{"Host: soma", good, hop}, "").code(t); got != wire.Busy {
		t.Errorf("a third daemon: %q", got)
	}
	r.read(t, "/v1/events")
	first.conn.Close()
	for { // its place is free a moment after its end
		if got := r.ask(t, "GET /v1/events", []string{"Host: soma", good, hop}, "").code(t); got == "" {
			break
		} else if got != wire.Busy {
			t.Fatalf("after one has ended: %q", got)
		}
	}
}

// Streams are bounded; one that ends makes room.
func TestTooManyStreams(t *testing.T) { // I-22
	r := start(t, func(s *api.Server) { s.SetStreams(2) })
	r.open(t, "s")
	r.read(t, "/v1/events")
	second := r.read(t, "/v1/sessions/s/events")
	if got := r.ask(t, "GET /v1/events", []string{"Host: soma", good}, "").code(t); got != wire.Busy {
		t.Errorf("a third stream: %q", got)
	}
	second.conn.Close()
	for r.subscriptions() == 2 {
		if _, err := r.client.Models(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for { // its place is free a moment after its subscription is gone
		if got := r.ask(t, "GET /v1/events", []string{"Host: soma", good}, "").code(t); got == "" {
			break
		} else if got != wire.Busy {
			t.Fatalf("after a stream has ended: %q", got)
		}
	}
}
