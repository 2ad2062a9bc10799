package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"soma/client"
	"soma/internal/config"
	"soma/internal/pypath"
	"soma/wire"
)

// TestMain is the whole program as well, when a command under test starts a daemon: one that behaves as SOMA_TEST_DAEMON says.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		mode := os.Getenv("SOMA_TEST_DAEMON")
		if daemons[mode] == nil {
			os.Exit(99) // no test asked for one
		}
		os.Exit(Main(os.Args[1:], Stdio{os.Stdin, os.Stdout, os.Stderr}, Hooks{Serve: daemons[mode]}))
	}
	goleak.VerifyTestMain(m)
}

type serveFunc = func(context.Context, config.Home, *config.Config, ServeOptions) error

// daemons are ways to go wrong.
var daemons = map[string]serveFunc{
	"schema": func(_ context.Context, h config.Home, _ *config.Config, _ ServeOptions) error {
		return &config.HomeError{Home: h.Dir(), Err: errors.New("its schema is 9, and this program knows 1")}
	},
	"panics": func(_ context.Context, _ config.Home, _ *config.Config, o ServeOptions) error {
		fmt.Fprintln(o.Log, "level=INFO msg=opening")
		panic("the store is upside down")
	},
	"talks": func(_ context.Context, _ config.Home, _ *config.Config, o ServeOptions) error {
		fmt.Fprintln(o.Log, "one line too many")
		panic("the store is upside down")
	},
	// It answers whether it is there, and dies of everything else.
	"dies": func(ctx context.Context, h config.Home, _ *config.Config, o ServeOptions) error {
		if _, err := h.Lock(); err != nil {
			return err
		}
		if err := h.EnsureToken(); err != nil {
			return err
		}
		l, err := config.ListenSocket(h.Socket())
		if err != nil {
			return err
		}
		return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/healthz" {
				fmt.Fprintln(o.Log, "level=ERROR msg=\"fsync failed\"")
				os.Exit(3)
			}
			w.Header().Set(wire.HeaderVersion, strconv.Itoa(wire.Version))
			_ = json.NewEncoder(w).Encode(wire.Health{OK: true})
		}))
	},
}

// soma runs the program in this OS process on a home of its own.
type soma struct {
	home string
	env  map[string]string
	in   string
	app  app
}

func newSoma(t *testing.T) *soma {
	home := filepath.Join(t.TempDir(), "home")
	return &soma{home: home, env: map[string]string{"SOMA_HOME": home, "HOME": home, "PATH": os.Getenv("PATH")}}
}

func (s *soma) run(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	s.app = app{
		Stdio: Stdio{strings.NewReader(s.in), &stdout, &stderr}, lostWait: 10 * time.Millisecond,
		env: func(name string) (string, bool) { v, ok := s.env[name]; return v, ok },
	}
	code = s.app.run(t.Context(), args)
	return code, stdout.String(), stderr.String()
}

// I-14, I-15: wrong use ends with 64 and one line that says what to do; nothing is started by it.
func TestUsage(t *testing.T) {
	s := newSoma(t)
	for _, c := range []struct {
		line string
		code int
		text string
	}{
		{"teleport", exitUsage, `cannot find a command "teleport"; see soma help`},
		{"rnu task", exitUsage, "did you mean soma run?"},
		{"help teleport", exitUsage, `cannot find a command "teleport"`},
		{"completion csh", exitUsage, "soma completion bash|zsh|fish|powershell"},
		{"man", exitUsage, "write it as soma man DIR"},
		{"ps --fast", exitUsage, "unknown flag: --fast; see soma help ps"},
		{"ps 1", exitUsage, "write it as soma ps"},
		{"ps -o xml", exitUsage, "text or json"},
		{"run", exitUsage, "give it as"},
		{"run -f none.md", exitBadFile, "none.md"},
		{"run -f x y", exitUsage, "both"},
		{"run --wait --detach x", exitUsage, "both"},
		{"run " + strings.Repeat("x", maxInput+1), exitBadFile, "longer than"},
		{"run \xff", exitBadFile, "not UTF-8"},
		{"run --python /none x", exitNoPython, "--python PATH"},
		{"send 1", exitUsage, "give it as"},
		{"send one x", exitUsage, "no pid"},
		{"attach 0", exitUsage, "no pid"},
		{"attach 1 --last", exitUsage, "both"},
		{"kill", exitUsage, "write it as soma kill PID"},
		{"kill 1 2", exitUsage, "write it as soma kill PID"},
		{"wait x", exitUsage, "no pid"},
		{"logs", exitUsage, "one of PID"},
		{"logs 1 --daemon", exitUsage, "one of PID"},
		{"logs one", exitUsage, "no pid"},
		{"logs --daemon", exitNotFound, "no daemon was ever started"},
		{"py", exitUsage, "-c CODE"},
		{"py -c 1 x.py", exitUsage, "several"},
		{"py --end --new", exitUsage, "several"},
		{"py --interrupt --last", exitUsage, "several"},
		{"py --timeout 2h -c 1", exitUsage, "1ms to 1h"},
		{"py none.py", exitBadFile, "none.py"},
		{"status", exitNoDaemon, "no daemon runs"},
		{"serve --recover never", exitConfig, "resume or hold"},
		{"config --max-pykernels 0", exitConfig, "1 to 1000"},
	} {
		args := strings.Fields(c.line)
		code, out, errs := s.run(t, args...)
		if code != c.code || !strings.Contains(errs, c.text) || out != "" {
			t.Errorf("soma %s: code %d, out %q, errors %q, want %d and %q", c.line[:min(len(c.line), 40)], code, out, errs, c.code, c.text)
		}
		if !strings.HasPrefix(errs, "soma: ") || strings.Count(errs, "\n") != 1 {
			t.Errorf("soma %s: errors %q", c.line[:min(len(c.line), 40)], errs)
		}
	}
	if _, err := os.Stat(s.home); err == nil {
		t.Error("wrong use made a home")
	}
}

// I-12: every command that needs no daemon speaks JSON with stable fields.
func TestJSON(t *testing.T) {
	s := newSoma(t)
	for _, c := range []struct{ line, fields string }{
		{"version --json", "build go wire"},
		{"config -o json", "file settings"},
		{"doctor -o json", "checks ok"},
		{"stop -o json", "kernels pid"},
	} {
		code, out, errs := s.run(t, strings.Fields(c.line)...)
		var body map[string]any
		if err := json.Unmarshal([]byte(out), &body); err != nil || code != exitOK || errs != "" || strings.Count(out, "\n") != 1 {
			t.Errorf("%s: code %d, out %q, errors %q", c.line, code, out, errs)
		}
		if got := strings.Join(sortedKeys(body), " "); got != c.fields {
			t.Errorf("%s: fields %s, want %s", c.line, got, c.fields)
		}
	}
	code, _, errs := s.run(t, "status", "-o", "json")
	var body struct {
		Error, Do string
		Exit      int
	}
	if err := json.Unmarshal([]byte(errs), &body); err != nil || code != exitNoDaemon || body.Exit != exitNoDaemon || body.Error == "" || body.Do == "" {
		t.Errorf("code %d, errors %q", code, errs)
	}
}

// I-16: a daemon that cannot start is reported with its own words and code, or with the log's last line.
func TestDaemonThatCannotStart(t *testing.T) {
	for _, c := range []struct {
		mode string
		code int
		text string
	}{
		{"schema", exitHome, "cannot start the daemon: cannot use home HOME: its schema is 9, and this program knows 1"},
		{"panics", exitNoDaemon, "its log ends: "},
	} {
		s := newSoma(t)
		t.Setenv("SOMA_TEST_DAEMON", c.mode)
		code, out, errs := s.run(t, "ps")
		if code != c.code || out != "" || !strings.Contains(errs, strings.ReplaceAll(c.text, "HOME", s.home)) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: code %d, out %q, errors %q", c.mode, code, out, errs)
		}
		if info, err := os.Stat(filepath.Join(s.home, "daemon.log")); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: log %v, %v", c.mode, info, err)
		}
	}
}

// I-16: a client that loses its daemon says so and starts it again, at most three times within a minute.
func TestClientKeepsItsDaemon(t *testing.T) {
	s := newSoma(t)
	t.Setenv("SOMA_TEST_DAEMON", "dies")
	code, out, errs := s.run(t, "wait", "1")
	if code != exitNoDaemon || out != "" {
		t.Errorf("code %d, out %q", code, out)
	}
	log := filepath.Join(s.home, "daemon.log")
	if n := strings.Count(errs, "soma: started the daemon (pid "); n != maxStarts || !strings.Contains(errs, "log "+log) {
		t.Errorf("%d starts: %s", n, errs)
	}
	if n := strings.Count(errs, "soma: the daemon is gone; "); n != maxStarts {
		t.Errorf("%d losses: %s", n, errs)
	}
	last := "soma: cannot keep a daemon: it was started 3 times within a minute, and its log ends: level=ERROR msg=\"fsync failed\"; see soma logs --daemon\n"
	if !strings.HasSuffix(errs, last) {
		t.Errorf("errors %s", errs)
	}
	if code, out, _ := s.run(t, "logs", "--daemon"); code != exitOK || strings.Count(out, "fsync failed") != maxStarts {
		t.Errorf("logs: code %d, %q", code, out)
	}
}

// Client and daemon of different builds: one line with both; another wire version is refused.
func TestOtherBuild(t *testing.T) {
	s := newSoma(t)
	h, err := config.HomeAt(s.home)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(h.Create(), h.EnsureToken()); err != nil {
		t.Fatal(err)
	}
	version := wire.Version
	l, err := config.ListenSocket(h.Socket())
	if err != nil {
		t.Fatal(err)
	}
	daemon := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(wire.HeaderVersion, strconv.Itoa(version))
		w.Header().Set(wire.HeaderBuild, "v9")
		if version != wire.Version {
			refusal := wire.Errorf(wire.WireVersion, "the daemon speaks wire version %d, the client another one", version).Do("stop it")
			w.WriteHeader(refusal.Status)
			_ = json.NewEncoder(w).Encode(refusal)
			return
		}
		_, _ = w.Write([]byte("{}"))
	})}
	served := make(chan error, 1)
	go func() { served <- daemon.Serve(l) }()
	defer func() { _ = daemon.Close(); <-served }()
	code, out, errs := s.run(t, "ps")
	if code != exitOK || !strings.HasPrefix(out, "PID") || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, "this program is build "+Build()+" and the daemon build v9") {
		t.Errorf("other build: code %d, out %q, errors %q", code, out, errs)
	}
	version++
	code, out, errs = s.run(t, "ps")
	if code != exitRefused || out != "" || !strings.Contains(errs, "wire version") || strings.Count(errs, "\n") != 1 {
		t.Errorf("other wire version: code %d, out %q, errors %q", code, out, errs)
	}
}

// I-16: a request that waits while the daemon is stopped ends with how to go on; no daemon is started.
func TestWaitEndsWithTheDaemon(t *testing.T) {
	s := newSoma(t)
	stand(t, s.home, func(config.Home, http.ResponseWriter, *http.Request) any {
		return wire.Errorf(wire.Stopping, "the daemon is stopping").Do("start it again")
	})
	code, out, errs := s.run(t, "wait", "7")
	if code != exitNoDaemon || out != "" || errs != "soma: the daemon was stopped; soma wait 7 goes on\n" {
		t.Errorf("code %d, out %q, errors %q", code, out, errs)
	}
}

// I-16
func TestStartsWithinAMinute(t *testing.T) {
	var s starts
	at := noon
	for i, c := range []struct {
		after time.Duration
		want  bool
	}{{0, true}, {10 * time.Second, true}, {10 * time.Second, true}, {10 * time.Second, false}, {29 * time.Second, false}, {2 * time.Second, true}, {time.Second, false}, {9 * time.Second, true}, {time.Second, false}} {
		at = at.Add(c.after)
		if got := s.allowed(at); got != c.want {
			t.Errorf("start %d: allowed %v", i, got)
		}
		if c.want {
			s.add(at, 0)
		}
	}
}

// I-15: what happens decides the code; I-14: every error is one line with a way out.
func TestFaults(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
		text string
	}{
		{wire.Errorf(wire.NotFound, "there is no process 9"), exitNotFound, "soma: cannot do that: there is no process 9; see soma ps -a"},
		{wire.Errorf(wire.NoModel, "no model at hand").Do("set a key"), exitConfig, "soma: no model at hand; set a key"},
		{wire.Errorf(wire.NoModel, "cannot choose").Do("one of\n  a\n  b"), exitConfig, "soma: cannot choose\none of\n  a\n  b"},
		{wire.Errorf(wire.NoPython, "python is too old"), exitNoPython, ""},
		{wire.Errorf(wire.Busy, "too many"), exitBusy, ""},
		{wire.Errorf(wire.WireVersion, "other version").Do("stop it"), exitRefused, ""},
		{wire.Errorf(wire.ProcessEnded, "it has ended"), exitRefused, "soma run"},
		{wire.Errorf(wire.TooLarge, "too large"), exitBadFile, ""},
		{wire.Errorf(wire.Internal, "failed"), exitFailed, "logs --daemon"},
		{&config.LockedError{Home: "/h", Holder: config.Holder{PID: 12, Socket: "/h/soma.sock"}}, exitHome, "pid 12 holds it (socket /h/soma.sock); use that one"},
		{&config.HomeError{Home: "/h", Err: errors.New("read-only")}, exitHome, ""},
		{&config.FileError{File: "/h/config.yaml", Line: 3, Key: "modles", Problem: "unknown key"}, exitConfig, "config.yaml:3: modles: unknown key"},
		{&pypath.Error{Path: "python3", Why: "it is not on PATH", Do: "install it"}, exitNoPython, "; install it"},
		{fmt.Errorf("x: %w", &client.LostError{Unsent: true, Err: io.EOF}), exitNoDaemon, "soma serve"},
		{errors.New("cannot print"), exitFailed, "soma: cannot print"},
		{errors.New("cannot print:\nit is\x1b[2J full"), exitFailed, "soma: cannot print: it is full\n"},
		{exitCode(7), 7, ""},
		{nil, 0, ""},
	} {
		var b bytes.Buffer
		code := report(&b, c.err, false)
		if code != c.code || !strings.Contains(b.String(), c.text) {
			t.Errorf("%v: code %d, %q, want %d, %q", c.err, code, b.String(), c.code, c.text)
		}
	}
	listed := map[int]bool{}
	for _, e := range exitCodes {
		listed[e.code] = true
	}
	for code, exit := range codes {
		if !listed[exit] {
			t.Errorf("%s ends with %d, which the table of exit codes does not hold", code, exit)
		}
	}
}

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }
