package shell

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/engine"
	"soma/internal/osproc"
	"soma/internal/store/postgres"
	"soma/internal/store/postgres/postgrestest"
	"soma/internal/store/sqlite"
	"soma/wire"
)

// m runs the tests and then ends the server, before goroutines are counted.
type m struct{ *testing.M }

func (m m) Run() int { return postgrestest.Main(m.M) }

func TestMain(t *testing.M) { goleak.VerifyTestMain(m{t}) }

// patience bounds every wait of a test.
const patience = 30 * time.Second

// statement is a write that a test has laid down.
type statement struct {
	sql  string
	args []any
}

func (s *statement) SQL() string { return s.sql }
func (s *statement) Args() []any { return s.args }

// world is a home with a real store and engine; commands are real OS processes.
type world struct {
	t         *testing.T
	dir       string
	workspace string
	open      func() (neuron.Store, error)
	store     neuron.Store
	engine    *engine.Engine
	*Host
	news chan struct{} // capacity 1: something was committed
	stop func()
}

// onBoth runs a test on SQLite and on PostgreSQL.
func onBoth(t *testing.T, fn func(t *testing.T, w *world)) {
	t.Run("sqlite", func(t *testing.T) { fn(t, newWorld(t)) })
	t.Run("postgres", func(t *testing.T) {
		dsn := postgrestest.Database(t)
		fn(t, newWorldOn(t, func() (neuron.Store, error) { return postgres.Open(t.Context(), dsn, postgres.Options{}) }))
	})
}

func newWorld(t *testing.T) *world {
	path := filepath.Join(t.TempDir(), "soma.db")
	return newWorldOn(t, func() (neuron.Store, error) { return sqlite.Open(t.Context(), path, sqlite.Options{}) })
}

func newWorldOn(t *testing.T, open func() (neuron.Store, error)) *world {
	w := &world{t: t, dir: t.TempDir(), workspace: t.TempDir(), open: open, news: make(chan struct{}, 1)}
	w.start()
	t.Cleanup(func() { w.stop() })
	branch := ident.Named("branch", "s")
	for _, id := range []string{"s", "other", "closed"} {
		state := "open"
		if id == "closed" {
			state = id
		}
		w.must(w.engine.Write(t.Context(), neuron.PlaceOf(id), &statement{`insert into session (id, owner, place, kind, workspace, model, agent, python, keep, branch, state, created_at)
values (?, 'me', ?, 'run', ?, '', '', '', 0, ?, ?, 0)`, []any{id, int64(neuron.PlaceOf(id)), w.workspace, branch[:], state}}))
	}
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// start starts the parts, as a new daemon does.
func (w *world) start() {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	var err error
	w.store, err = w.open()
	w.must(err)
	log := slog.New(slog.NewTextHandler(w.t.Output(), nil))
	w.Host = New(Options{Owner: "me", Reader: w.store, Dir: filepath.Join(w.dir, "shell"), Now: time.Now, Log: log,
		Env: func() []string { return []string{"PATH=/usr/bin:/bin", "LANG=C.UTF-8"} }})
	w.engine, err = engine.New(engine.Options{
		Store: w.store, Kinds: []*neuron.Kind{w.Neuron()}, Types: w.Aliases(), Adapters: map[string]neuron.Adapter{Kind: w.Adapter()},
		Log: log, Fatal: func(err error) { w.t.Errorf("engine: %v", err) },
		Committed: func([]*neuron.Record) {
			select {
			case w.news <- struct{}{}:
			default:
			}
		},
	})
	w.must(err)
	w.Bind(w.engine)
	w.must(w.engine.Start(ctx))
	if several, ok := w.store.(*postgres.Store); ok { // this node is alone, and takes all places
		taken, err := several.Take(ctx, w.engine.Fence(), neuron.AllPlaces())
		w.must(err)
		w.must(w.engine.Gain(ctx, taken))
	}
	w.must(w.Host.Start(ctx))
	w.stop = func() {
		wait, done := context.WithTimeout(ctx, patience)
		defer done()
		cancelled := errors.Join(w.Host.Stop(wait), w.engine.Stop(wait), w.store.Close())
		cancel()
		w.must(cancelled)
	}
}

// end waits for the end of a command.
func (w *world) end(session, id string) wire.ShellCommand {
	w.t.Helper()
	deadline := time.After(patience)
	for {
		c, err := w.Command(w.t.Context(), session, id)
		w.must(err)
		if c.State == ended {
			return c
		}
		select {
		case <-w.news:
		case <-deadline:
			w.t.Fatalf("waited for the end of %s: %+v", id, c)
		}
	}
}

func (w *world) run(session, id, command string) wire.ShellCommand {
	w.t.Helper()
	c, err := w.Run(w.t.Context(), session, id, wire.RunShell{Command: command})
	w.must(err)
	return c
}

// text reads all of an output, page by page.
func (w *world) text(session, id string, limit int) (text string, pages int) {
	w.t.Helper()
	for at := int64(0); ; pages++ {
		p, err := w.Output(w.t.Context(), session, id, at, limit)
		w.must(err)
		if len(p.Text) > limit {
			w.t.Fatalf("a page of %d bytes", len(p.Text))
		}
		if text += p.Text; p.Next == nil {
			return text, pages
		}
		at = *p.Next
	}
}

// printed waits until the output holds a text.
func (w *world) printed(session, id, text string) string {
	w.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(patience); ; {
		p, err := w.Output(w.t.Context(), session, id, 0, wire.MaxShellRead)
		w.must(err)
		if strings.Contains(p.Text, text) {
			return p.Text
		}
		select {
		case <-tick.C:
		case <-deadline:
			w.t.Fatalf("waited for %q in %q", text, p.Text)
		}
	}
}

func code(err error) wire.Code {
	var e *wire.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// gone waits for the end of an OS process.
func (w *world) gone(pid string) {
	w.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(patience); ; {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			w.t.Fatalf("process %s lives on: %s", pid, stat)
		}
	}
}

// P-129, I-21: a command runs once in the workspace, in a group of its own and without an input; what it prints is cleaned.
func TestRun(t *testing.T) { onBoth(t, testRun) }

func testRun(t *testing.T, w *world) {
	const command = `pwd; read x || echo no input; printf 'é\033[31mred\033[0m\033]0;title\007 \377\n' >&2; echo run >> runs; exit 3`
	w.run("s", "a", command)
	c := w.end("s", "a")
	if c.Status != exited || *c.ExitCode != 3 || c.Command != command || c.EndedAt == nil || c.Bytes != c.Kept {
		t.Errorf("%+v", c)
	}
	want := w.workspace + "\nno input\néred \uFFFD\n"
	if text, _ := w.text("s", "a", 1000); text != want || c.Bytes != int64(len(want)) {
		t.Errorf("%q of %d bytes, want %q", text, c.Bytes, want)
	}
	if again := w.run("s", "a", command); again.State != ended {
		t.Errorf("again %+v", again)
	}
	if runs, _ := os.ReadFile(filepath.Join(w.workspace, "runs")); string(runs) != "run\n" {
		t.Errorf("it ran %q", runs)
	}
	if info, err := os.Stat(w.file("s", "a")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	for name, err := range map[string]error{
		"conflict":       second(w.Run(t.Context(), "s", "a", wire.RunShell{Command: "ls"})),
		"not_found":      second(w.Run(t.Context(), "none", "a", wire.RunShell{Command: "ls"})),
		"session_closed": second(w.Run(t.Context(), "closed", "a", wire.RunShell{Command: "ls"})),
		"bad_request":    second(w.Run(t.Context(), "s", "b", wire.RunShell{Command: " "})),
		"too_large":      second(w.Run(t.Context(), "s", "b", wire.RunShell{Command: strings.Repeat("x", wire.MaxShellLine+1)})),
	} {
		if code(err) != wire.Code(name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, bad := range []wire.RunShell{{Command: "a\x00b"}, {Command: "ls", TimeoutMS: -1}, {Command: "ls", TimeoutMS: wire.MaxShellTime.Milliseconds() + 1}} {
		if _, err := w.Run(t.Context(), "s", "b", bad); code(err) != wire.BadRequest {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if _, err := w.Command(t.Context(), "other", "a"); code(err) != wire.NotFound {
		t.Errorf("of another session: %v", err)
	}
	if _, err := w.Output(t.Context(), "other", "a", 0, 10); code(err) != wire.NotFound {
		t.Errorf("of another session: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

// P-061, P-129: pages are cut on characters and end with null; past 16 MiB nothing is kept, and the command goes on.
func TestOutput(t *testing.T) {
	w := newWorld(t)
	w.run("s", "a", `for i in 1 2 3 4 5 6 7 8 9; do printf 'aé漢🎉'; done`)
	w.end("s", "a")
	for limit := 4; limit < 12; limit++ {
		if text, pages := w.text("s", "a", limit); text != strings.Repeat("aé漢🎉", 9) || pages < 5 {
			t.Errorf("by %d bytes: %q in %d pages", limit, text, pages)
		}
	}
	if p, err := w.Output(t.Context(), "s", "a", 2, 8); err != nil || p.Offset != 3 || p.Text != "漢🎉" || *p.Next != 10 {
		t.Errorf("from within a character: %+v, %v", p, err)
	}
	if p, err := w.Output(t.Context(), "s", "a", 1000, 8); err != nil || p.Text != "" || p.Next != nil {
		t.Errorf("past the end: %+v, %v", p, err)
	}
	w.run("s", "half", `printf 'a\303'; sleep 0.2; printf '\251\360\237'`)
	w.end("s", "half")
	if text, _ := w.text("s", "half", 100); text != "aé\uFFFD" && text != "aé\uFFFD\uFFFD" {
		t.Errorf("what comes in halves is %q", text)
	}
	w.run("s", "big", `head -c 20000000 /dev/zero | tr '\0' x; echo; exit 5`)
	c := w.end("s", "big")
	if c.Bytes != 20_000_001 || c.Kept != wire.MaxShellKept || *c.ExitCode != 5 {
		t.Errorf("%+v", c)
	}
	if text, _ := w.text("s", "big", wire.MaxShellRead); len(text) != wire.MaxShellKept {
		t.Errorf("%d bytes are read", len(text))
	}
	w.must(os.Remove(w.file("s", "a")))
	if _, err := w.Output(t.Context(), "s", "a", 0, 8); code(err) != wire.OutputLost {
		t.Errorf("of a file that is gone: %v", err)
	}
}

// P-129: a command ends at its deadline or an interrupt with all that it has started, also what ignores TERM.
func TestEnds(t *testing.T) {
	w := newWorld(t)
	w.grace = 50 * time.Millisecond
	_, err := w.Run(t.Context(), "s", "late", wire.RunShell{Command: "echo begun; sleep 600", TimeoutMS: 50})
	w.must(err)
	if c := w.end("s", "late"); c.Status != timedOut || c.ExitCode != nil || c.Kept != 6 {
		t.Errorf("%+v", c)
	}
	w.run("s", "stubborn", `trap '' TERM; sleep 600 & echo $!; setsid sleep 600 & echo $! >away; echo; wait; wait`)
	child := strings.TrimSpace(w.printed("s", "stubborn", "\n\n"))
	away, err := os.ReadFile(filepath.Join(w.workspace, "away"))
	w.must(err)
	_, err = w.Interrupt(t.Context(), "s", "stubborn")
	w.must(err)
	if c := w.end("s", "stubborn"); c.Status != stopped {
		t.Errorf("%+v", c)
	}
	w.gone(child)
	w.gone(strings.TrimSpace(string(away)))
	if c, err := w.Interrupt(t.Context(), "s", "stubborn"); err != nil || c.Status != stopped {
		t.Errorf("one that has ended: %+v, %v", c, err)
	}
	// What it leaves in its group ends with it, and one that holds the pipe elsewhere delays nothing for long.
	w.run("s", "leaves", `sleep 600 & echo $!; setsid sleep 600 & echo $!`)
	if c := w.end("s", "leaves"); c.Status != exited || *c.ExitCode != 0 {
		t.Errorf("%+v", c)
	}
	text, _ := w.text("s", "leaves", 100)
	pids := strings.Fields(text)
	if len(pids) != 2 {
		t.Fatalf("printed %q", text)
	}
	w.gone(pids[0])
	osproc.KillMarked(marker(execution("s", "leaves")))
	w.gone(pids[1])
	w.run("s", "killed", "kill -9 $$")
	if c := w.end("s", "killed"); *c.ExitCode != -9 {
		t.Errorf("%+v", c)
	}
	w.must(os.Rename(w.workspace, w.workspace+".away"))
	defer func() { w.must(os.Rename(w.workspace+".away", w.workspace)) }()
	w.run("s", "nowhere", "ls")
	if c := w.end("s", "nowhere"); c.Status != failed || !strings.Contains(c.Note, "cannot start the command") {
		t.Errorf("%+v", c)
	}
}

// P-129, N-10: a command that a stop of the daemon has ended is told as stopped; after a kill it is unknown, what is left of it
// is killed, and it never runs again.
func TestRestart(t *testing.T) { onBoth(t, testRestart) }

func testRestart(t *testing.T, w *world) {
	w.run("s", "a", "echo run >> runs; echo $$; sleep 600")
	pid := strings.TrimSpace(w.printed("s", "a", "\n"))
	w.stop()
	w.gone(pid)
	w.start()
	if c := w.end("s", "a"); c.Status != stopped || c.Kept == 0 {
		t.Errorf("after a stop %+v", c)
	}
	w.run("s", "b", "echo run >> runs; echo $$; sleep 600")
	w.printed("s", "b", "\n")
	w.stop()
	// As a killed daemon leaves it: nothing told of the end, and a process lives.
	w.must(os.Remove(w.file("s", "b") + ending))
	left := exec.Command("/bin/sleep", "600")
	left.Env = []string{marker(execution("s", "b"))}
	left.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	w.must(left.Start())
	w.start()
	c := w.end("s", "b")
	if c.Status != unknown || c.Kept == 0 || c.ExitCode != nil || c.Note == "" {
		t.Errorf("after a kill %+v", c)
	}
	if err := left.Wait(); err == nil || left.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("what was left ended with %v", err)
	}
	if again := w.run("s", "b", c.Command); again.Status != unknown {
		t.Errorf("again %+v", again)
	}
	if runs, _ := os.ReadFile(filepath.Join(w.workspace, "runs")); string(runs) != "run\nrun\n" {
		t.Errorf("they ran %q", runs)
	}
}

// A session runs 8 commands at once and keeps 256 that have ended.
func TestCommandsAreBounded(t *testing.T) { onBoth(t, testCommandsAreBounded) }

func testCommandsAreBounded(t *testing.T, w *world) {
	for i := range maxLive {
		w.run("s", fmt.Sprint("live", i), "sleep 600")
	}
	if _, err := w.Run(t.Context(), "s", "more", wire.RunShell{Command: "ls"}); code(err) != wire.Busy {
		t.Errorf("one more: %v", err)
	}
	w.EndSession("s")
	for i := range maxLive {
		if c := w.end("s", fmt.Sprint("live", i)); c.Status != stopped {
			t.Errorf("%+v", c)
		}
	}
	var old []neuron.Op
	for i := range maxKept + 40 {
		old = append(old, &insertCommand{session: "s", id: fmt.Sprint("old", i), branch: []byte{0}, command: "true"},
			&endCommand{session: "s", id: fmt.Sprint("old", i), outcome: outcome{Status: exited}, at: time.UnixMicro(int64(i))})
	}
	w.must(w.engine.Write(t.Context(), neuron.PlaceOf("s"), old...))
	w.run("s", "last", "true")
	w.end("s", "last")
	n := 0
	w.must(w.store.Query(t.Context(), `select count(*) from shell_command where session = 's'`, nil, func(scan func(...any) error) error { return scan(&n) }))
	if n != maxKept {
		t.Errorf("%d are kept", n)
	}
	if _, err := w.Command(t.Context(), "s", "last"); err != nil {
		t.Error(err)
	}
}

// P-063: outputs go two weeks after the last word, or with their session.
func TestOldOutputs(t *testing.T) {
	w := newWorld(t)
	w.run("s", "a", "echo a")
	w.run("other", "b", "echo b")
	w.end("s", "a")
	w.end("other", "b")
	old := time.Now().Add(-keptFor - time.Minute)
	for _, name := range []string{w.file("s", "a"), w.file("s", "a") + ending} {
		w.must(os.Chtimes(name, old, old))
	}
	w.removeOld()
	if _, err := os.Stat(w.folder("s")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an old output stays: %v", err)
	}
	if text, _ := w.text("other", "b", 10); text != "b\n" {
		t.Errorf("a new one is %q", text)
	}
	w.must(w.ForgetSession("other"))
	if _, err := os.Stat(w.folder("other")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("that of a removed session stays: %v", err)
	}
}
