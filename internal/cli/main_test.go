package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

	"soma/internal/cli/exit"
	"soma/internal/config"
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
	// healthWait is the program's where it is 0.
	healthWait time.Duration
}

func newSoma(t *testing.T) *soma {
	home := filepath.Join(t.TempDir(), "home")
	return &soma{home: home, env: map[string]string{"SOMA_HOME": home, "HOME": home, "PATH": os.Getenv("PATH")}}
}

func (s *soma) run(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	s.app = app{
		Stdio: Stdio{strings.NewReader(s.in), &stdout, &stderr}, lostWait: 10 * time.Millisecond, healthWait: cmp.Or(s.healthWait, healthWait),
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
		{"teleport", exit.Usage, `cannot find a command "teleport"; see soma help`},
		{"rnu task", exit.Usage, "did you mean soma run, or soma rm?"},
		{"help teleport", exit.Usage, `cannot find a command "teleport"`},
		{"job show 3", exit.Usage, `cannot find a command "job show"; see soma help job`},
		{"store foo", exit.Usage, `cannot find a command "store foo"; see soma help store`},
		{"deadletters drop", exit.Usage, `cannot find a command "deadletters drop"`},
		{"completion csh", exit.Usage, "soma completion bash|zsh|fish|powershell"},
		{"man", exit.Usage, "write it as soma man DIR"},
		{"ps --fast", exit.Usage, "unknown flag: --fast; see soma help ps"},
		{"ps 1", exit.Usage, "write it as soma ps"},
		{"ps -o xml", exit.Usage, "text or json"},
		{"run", exit.Usage, "give it as"},
		{"run -f none.md", exit.BadFile, "none.md"},
		{"run -f x y", exit.Usage, "both"},
		{"run --wait --detach x", exit.Usage, "both"},
		{"run " + strings.Repeat("x", maxInput+1), exit.BadFile, "longer than"},
		{"run \xff", exit.BadFile, "not UTF-8"},
		{"run --python /none x", exit.NoPython, "--python PATH"},
		{"send 1", exit.Usage, "give it as"},
		{"send one x", exit.Usage, "no pid"},
		{"attach 0", exit.Usage, "no pid"},
		{"attach 1 --last", exit.Usage, "both"},
		{"kill", exit.Usage, "write it as soma kill PID"},
		{"kill 1 2", exit.Usage, "write it as soma kill PID"},
		{"wait x", exit.Usage, "no pid"},
		{"logs", exit.Usage, "one of PID"},
		{"logs 1 --daemon", exit.Usage, "one of PID"},
		{"logs one", exit.Usage, "no pid"},
		{"logs --daemon", exit.NotFound, "no daemon was ever started"},
		{"py", exit.Usage, "-c CODE"},
		{"py -c 1 x.py", exit.Usage, "several"},
		{"py --end --new", exit.Usage, "several"},
		{"py --interrupt --last", exit.Usage, "several"},
		{"py --timeout 2h -c 1", exit.Usage, "1ms to 1h"},
		{"py none.py", exit.BadFile, "none.py"},
		{"status", exit.NoDaemon, "no daemon runs"},
		{"serve --recover never", exit.Config, "resume or hold"},
		{"config --max-pykernels 0", exit.Config, "1 to 1000"},
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
		if err := json.Unmarshal([]byte(out), &body); err != nil || code != exit.OK || errs != "" || strings.Count(out, "\n") != 1 {
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
	if err := json.Unmarshal([]byte(errs), &body); err != nil || code != exit.NoDaemon || body.Exit != exit.NoDaemon || body.Error == "" || body.Do == "" {
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
		{"schema", exit.Home, "cannot start the daemon: cannot use home HOME: its schema is 9, and this program knows 1"},
		{"panics", exit.NoDaemon, "its log ends: "},
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
	if code != exit.NoDaemon || out != "" {
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
	if code, out, _ := s.run(t, "logs", "--daemon"); code != exit.OK || strings.Count(out, "fsync failed") != maxStarts {
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
	if code != exit.OK || !strings.HasPrefix(out, "PID") || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, "this program is build "+Build()+" and the daemon build v9") {
		t.Errorf("other build: code %d, out %q, errors %q", code, out, errs)
	}
	if _, _, errs := s.run(t, "stop"); strings.Contains(errs, "this program is build") {
		t.Errorf("who stops a daemon is told to stop it: %q", errs)
	}
	version++
	code, out, errs = s.run(t, "ps")
	if code != exit.Refused || out != "" || !strings.Contains(errs, "wire version") || strings.Count(errs, "\n") != 1 {
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
	if code != exit.NoDaemon || out != "" || errs != "soma: the daemon was stopped; soma wait 7 goes on\n" {
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

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }
