package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"soma/client"
	"soma/internal/cli/exit"
	"soma/wire"
)

// I-11: ps is as wide as its content.
func TestProcessTable(t *testing.T) {
	ago := func(d time.Duration) time.Time { return noon.Add(-d) }
	price, nothing, killed := int64(1_500_000), int64(0), 137
	got := processTable([]wire.Process{
		{PID: 1, Model: "script:tour", Workspace: "/srv/data", State: wire.State{State: wire.Running}, Steps: 3, Cells: 2, Tokens: 1200, Cost: &nothing, CreatedAt: ago(59 * time.Second)},
		{PID: 12, Model: "big", Workspace: "/w\x1b[2J", State: wire.State{State: wire.Blocked, Reason: "waiting for input"}, Cost: &price, Estimated: true, CreatedAt: ago(3 * time.Hour)},
		{PID: 13, Model: "big", Workspace: "/w", State: wire.State{State: wire.Blocked, Reason: "waiting for input", Detail: "the last turn failed: the key is not good for this"}, Steps: 1, CreatedAt: ago(3 * time.Hour)},
		{PID: 103, Workspace: "/", State: wire.State{State: wire.Terminated, Reason: "killed"}, ExitCode: &killed, Tokens: 1_000_000, CreatedAt: ago(72 * time.Hour)},
	}, noon)
	const want = `PID  STATE       REASON                                                        MODEL        STEPS  CELLS   TOKENS        COST  AGE  WORKSPACE
  1  running     -                                                             script:tour      3      2     1200          $0  59s  /srv/data
 12  blocked     waiting for input                                             big              0      0        0  ~$0.001500   3h  /w
 13  blocked     waiting for input: the last turn failed: the key is not goo…  big              1      0        0     unknown   3h  /w
103  terminated  killed (137)                                                  -                0      0  1000000     unknown   3d  /
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if long := brief(wire.Process{State: wire.State{Reason: strings.Repeat("x", 100)}}); len([]rune(long)) != 60 {
		t.Errorf("reason %q", long)
	}
}

func TestStatusText(t *testing.T) {
	s := wire.Status{
		PID: 7, Home: "/h", Socket: "/h/soma.sock", Version: "v1", Wire: 1, StartedAt: noon.Add(-90 * time.Minute),
		Store: wire.StoreStatus{Engine: "sqlite", Path: "/h/soma.db", Bytes: 1_234_567, WAL: 512}, Processes: map[string]int{"ready": 2, "blocked": 1},
		Models: []string{"script:tour"},
	}
	if got := reachable(s.Models, []string{"OLLAMA_HOST", "OPENAI_API_KEY", "OPENAI_BASE_URL"}); !slices.Equal(got, []string{"script:tour", "ollama:MODEL", "openai:MODEL"}) {
		t.Errorf("models %q", got)
	}
	const want = `daemon         pid 7, up 1h, build v1, wire 1
home           /h
socket         /h/soma.sock
store          sqlite /h/soma.db, 1.2 MB and 512 bytes of log
processes      1 blocked, 2 ready
models         script:tour
provider keys  none
`
	if got := statusText(s, noon); got != want+"kernels        none\n" {
		t.Errorf("got\n%s", got)
	}
	s.Store.Groups, s.Store.Free = []wire.SizeGroup{{Name: "events", Rows: 12, Bytes: 4096}}, 1_000_000
	s.Store.Files = map[string]int64{"spool": 10}
	const sizes = "\nHOLDS          ROWS      SIZE\nevents           12    4.1 kB\nfree              -    1.0 MB\nspool (files)     -  10 bytes\n"
	if got := statusText(s, noon); got != want+"kernels        none\n"+sizes {
		t.Errorf("got\n%s", got)
	}
	s.Store.Groups = nil
	s.Kernels = []wire.Kernel{{ID: "k", PID: 9, State: "attached", Cells: 3, Python: "/usr/bin/python3", Workspace: "/srv", UsedAt: noon}}
	const kernels = "\nKERNEL  PID  STATE     CELLS  USED  PYTHON            WORKSPACE\nk         9  attached      3    0s  /usr/bin/python3  /srv\n"
	if got := statusText(s, noon); got != want+kernels {
		t.Errorf("got\n%s", got)
	}
}

// A cell of soma py prints what the code would print, once, whatever of the stream is lost.
func TestCellPrinter(t *testing.T) {
	value := "42"
	cell := func(status string, change ...func(*wire.CellEvent)) wire.CellEvent {
		b := wire.CellEvent{Cell: wire.Cell{ID: "x", Code: "f()", Status: status}}
		for _, fn := range change {
			fn(&b)
		}
		return b
	}
	wrote := func(head, tail string, size int64) func(*wire.CellEvent) {
		return func(b *wire.CellEvent) { b.Output, b.Tail, b.Cell.OutputSize = head, tail, size }
	}
	for _, c := range []struct {
		name              string
		play              *play
		code              bool
		status, out, errs string
	}{
		{
			"live, then the rest and the value",
			new(play).event(wire.CellStarted, cell("")).output("other", 0, "no").output("x", 0, "a\x1b[1m").output("x", 0, "a\x1b[1mb\r").output("x", 99, "gap").
				event(wire.CellEnded, wire.CellEvent{Cell: wire.Cell{ID: "other", Status: "ok"}}).
				event(wire.CellEnded, cell("ok", wrote("a\x1b[1mb\rc\n", "", 9), func(b *wire.CellEvent) { b.Cell.Value = &value })),
			false, "ok", "a\x1b[1mb\rc\n42\n", "soma: a part of the output was missed; it is shown, with what follows, when the cell has ended\n",
		},
		{
			"a part was not kept",
			new(play).event(wire.CellEnded, cell("ok", wrote("head.", "tail\n", 1_000_000))),
			false, "ok", "head.middle.tail\n", "soma: 1000.0 kB of output were not kept\n",
		},
		{
			"a value after an open line",
			new(play).event(wire.CellEnded, cell("ok", wrote("no end", "", 6), func(b *wire.CellEvent) { b.Cell.Value = &value })),
			false, "ok", "no end\n42\n", "",
		},
		{
			"live reached into the tail",
			new(play).output("x", 0, "0123456").event(wire.CellEnded, cell("ok", wrote("012", "6789", 10))),
			false, "ok", "0123456789", "",
		},
		{
			"an error",
			new(play).event(wire.CellEnded, cell("error", func(b *wire.CellEvent) {
				b.Cell.Error = &wire.CellFault{Traceback: "Traceback:\nValueError: no\n"}
				b.Cell.Note = "names of the earlier kernel are gone"
			})),
			false, "error", "", "Traceback:\nValueError: no\nsoma: names of the earlier kernel are gone\n",
		},
		{
			"unknown, shown later with its code",
			new(play).event(wire.CellStarted, cell("")).event(wire.CellEnded, cell("unknown")),
			true, "unknown", "  | f()\n", "soma: the cell was not run to its end: result unknown: it may have happened, and was not repeated\n",
		},
	} {
		var out, errs bytes.Buffer
		p := &cellPrinter{app: &app{Stdio: Stdio{Out: &out, Err: &errs}, env: os.LookupEnv}, id: "x", code: c.code}
		if c.code {
			p.id = ""
		}
		p.page = func(offset int64) (wire.OutputPage, error) {
			if offset == int64(len("head.")) {
				return wire.OutputPage{Offset: offset, Next: offset + int64(len("middle.")), Kept: true, Text: "middle."}, nil
			}
			return wire.OutputPage{Offset: offset, Next: 1_000_000}, nil
		}
		var err error
		for _, f := range c.play.frames {
			if err = p.frame(f); err != nil {
				break
			}
		}
		if !errors.Is(err, client.ErrEnough) || p.status != c.status || out.String() != c.out || errs.String() != c.errs {
			t.Errorf("%s: %v, status %s, out %q, errors %q", c.name, err, p.status, out.String(), errs.String())
		}
	}
}

// I-16: what is said beside the transcript begins a line of its own, also in the middle of a text.
func TestSayBeginsALine(t *testing.T) {
	var out bytes.Buffer
	a := &app{Stdio: Stdio{Out: &out, Err: &out}, env: os.LookupEnv}
	show, finish := a.viewer(t.Context(), false)
	for _, f := range new(play).started(1, 1, "go").delta(1, 1, 0, "I am cut").frames {
		if err := show(f); err != nil {
			t.Fatal(err)
		}
	}
	a.say("the daemon is gone")
	a.say("it is here again")
	if err := finish(); err != nil || !strings.HasSuffix(out.String(), "I am cut\nsoma: the daemon is gone\nsoma: it is here again\n") {
		t.Errorf("%v, %q", err, out.String())
	}
}

// I-11: attach folds long code, logs shows all of it.
func TestLongCodeIsFolded(t *testing.T) {
	for _, whole := range []bool{false, true} {
		var out bytes.Buffer
		a := &app{Stdio: Stdio{Out: &out}, env: os.LookupEnv}
		show, _ := a.viewer(t.Context(), whole)
		code := strings.Repeat("x\n", 3*maxCodeLines)
		for _, f := range new(play).event(wire.CellStarted, wire.CellEvent{Cell: wire.Cell{ID: "c", Code: code}}).frames {
			if err := show(f); err != nil {
				t.Fatal(err)
			}
		}
		if got := strings.Count(out.String(), "  | x\n"); got != map[bool]int{false: maxCodeLines, true: 3 * maxCodeLines}[whole] {
			t.Errorf("whole %t: %d lines of code", whole, got)
		}
	}
}

// I-12: one event a line; live ones carry no sequence.
func TestFramesAsJSON(t *testing.T) {
	var out bytes.Buffer
	a := &app{Stdio: Stdio{Out: &out}}
	p := new(play).ended("done").delta(1, 2, 3, "hi").output("c", 4, "ho").reset(9)
	for _, f := range p.frames {
		if err := a.frameJSON(f); err != nil {
			t.Fatal(err)
		}
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 4 {
		t.Fatalf("%q", lines)
	}
	var e wire.Event
	if err := json.Unmarshal([]byte(lines[0]), &e); err != nil || e.Kind != wire.TurnEnded || e.Seq != 1 || e.Session != "s" {
		t.Errorf("%s: %v", lines[0], err)
	}
	for i, want := range []string{
		`{"kind":"delta","body":{"pid":7,"step":1,"attempt":2,"offset":3,"text":"hi"}}`,
		`{"kind":"output","body":{"cell":"c","offset":4,"text":"ho"}}`,
	} {
		if lines[i+1] != want {
			t.Errorf("%s, want %s", lines[i+1], want)
		}
	}
	if !strings.HasPrefix(lines[3], `{"kind":"reset","body":{`) {
		t.Errorf("%s", lines[3])
	}
}

// What needs a store says where it may be.
func TestBackupWithoutAStore(t *testing.T) {
	s := newSoma(t)
	code, _, errs := s.run(t, "backup", filepath.Join(t.TempDir(), "b"))
	if code != exit.NotFound || !strings.Contains(errs, "has no store; if its daemon works on a database, name that in SOMA_STORE or in config.yaml") {
		t.Errorf("code %d, %s", code, errs)
	}
	s.env["SOMA_STORE"] = "postgres://me@127.0.0.1:1/x"
	code, _, errs = s.run(t, "backup", filepath.Join(t.TempDir(), "b"))
	if code != exit.Busy || !strings.Contains(errs, "connect: connection refused; see whether its server runs") {
		t.Errorf("without a server: code %d, %s", code, errs)
	}
}

// I-16: doctor says what is wrong with the home and with the disk, and that no unit keeps the daemon.
func TestDoctor(t *testing.T) {
	s := newSoma(t)
	check := func(name, want string) {
		t.Helper()
		_, out, _ := s.run(t, "doctor")
		for line := range strings.Lines(out) {
			if fields := strings.Fields(line); len(fields) > 1 && fields[1] == name {
				if !strings.HasPrefix(line, want[:4]) || !strings.Contains(line, strings.TrimSpace(want[4:])) {
					t.Errorf("%s: %q, want %q", name, line, want)
				}
				return
			}
		}
		t.Errorf("no line for %s:\n%s", name, out)
	}
	check("home", "warn the first soma run makes it")
	check("systemd", "warn soma serve --install")
	check("models", "warn script:tour")
	check("python", "ok   version 3.")
	check("store", "ok   none yet")
	s.env["SOMA_STORE"] = "postgres://me@127.0.0.1:1/x"
	check("store", "fail postgres://me@127.0.0.1:1/x: cannot connect to 127.0.0.1:1: connect: connection refused")
	delete(s.env, "SOMA_STORE")
	s.env["OPENAI_API_KEY"] = "sk-secret"
	check("models", "warn --model openai:NAME")
	s.env["SOMA_DEFAULT_MODEL"] = "script:tour"
	check("models", "ok   script:tour")
	if code, out, errs := s.run(t, "serve", "--install"); code != exit.OK || !strings.Contains(out, "systemctl --user enable --now soma") {
		t.Errorf("install: code %d, %q, %q", code, out, errs)
	}
	unit, err := os.ReadFile(filepath.Join(s.home, ".config/systemd/user/soma.service"))
	if err != nil || !strings.Contains(string(unit), "Restart=always") || !strings.Contains(string(unit), "SOMA_HOME="+s.home) {
		t.Errorf("unit %s, %v", unit, err)
	}
	check("systemd", "ok   soma.service")
	if err := os.Chmod(s.home, 0o755); err != nil {
		t.Fatal(err)
	}
	check("home", "fail run chmod 700 "+s.home)
	for name, text := range map[string]string{"config.yaml": "modles: []\n", "soma.db": "no database", "token": "no token"} {
		if err := os.WriteFile(filepath.Join(s.home, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check("config", "fail config.yaml:1: modles: unknown key")
	check("store", "fail is no database")
	check("token", "fail holds no token")
	if code, _, _ := s.run(t, "doctor"); code != exit.Failed {
		t.Errorf("doctor ended with %d", code)
	}
}

// I-03: the result and its sources, and no secret.
func TestConfigCommand(t *testing.T) {
	s := newSoma(t)
	if err := os.MkdirAll(s.home, 0o700); err != nil {
		t.Fatal(err)
	}
	text := "recover: hold\nmax_concurrent: 7\nmodels:\n  - {name: big, type: openai, base_url: 'http://localhost/v1', model: m, key_env: BIG_KEY}\n"
	if err := os.WriteFile(filepath.Join(s.home, "config.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.env["SOMA_MAX_CONCURRENT"], s.env["BIG_KEY"] = "8", "sk-secret"
	code, out, errs := s.run(t, "config", "--log-level", "debug")
	if code != exit.OK || errs != "" || strings.Contains(out, "sk-secret") {
		t.Fatalf("code %d, %q, %q", code, out, errs)
	}
	got := map[string]string{}
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) == 3 {
			got[f[0]] = f[1] + " " + f[2]
		}
	}
	for key, want := range map[string]string{"recover": "hold file", "max_concurrent": "8 env", "log_level": "debug flag", "max_pykernels": "32 default"} {
		if got[key] != want {
			t.Errorf("%s: %q, want %q\n%s", key, got[key], want, out)
		}
	}
	if !strings.Contains(out, "key_env=BIG_KEY") {
		t.Errorf("no model in %s", out)
	}
}
