package link

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"soma/client"
	"soma/internal/cli"
	"soma/internal/config"
	"soma/internal/daemon"
	"soma/wire"
)

var (
	cuts  = flag.Int("cuts", 240, "cuts of the line between daemon and python kernels")
	kills = flag.Int("kills", 8, "kills of the daemon during that")
)

// kernels work at once, each in a session of its own.
const kernels = 8

// patience bounds the time in which a cell must end, whatever is cut.
const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"soma": func() {
		serve := func(ctx context.Context, home config.Home, cfg *config.Config, o cli.ServeOptions) error {
			return daemon.Run(ctx, home, cfg, daemon.Options{Build: o.Build, Log: o.Log, Env: os.LookupEnv, Environ: os.Environ})
		}
		os.Exit(cli.Main(os.Args[1:], cli.Stdio{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, cli.Hooks{Serve: serve}))
	}})
}

// world is a home with its daemon.
type world struct {
	t      *testing.T
	home   config.Home
	client *client.Client
	log    *os.File

	mu     sync.Mutex
	daemon *exec.Cmd
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "link") // short: sockets lie in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	home, err := config.HomeAt(filepath.Join(dir, "home"))
	if err == nil {
		err = home.Create()
	}
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, home: home}
	if w.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		t.Fatal(err)
	}
	w.client, err = client.New(client.Options{
		Dial: func(ctx context.Context) (net.Conn, error) { return config.DialSocket(ctx, home.Socket()) },
		Token: func() (string, error) {
			token, err := home.ReadToken()
			return token.Reveal(), err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.start(t.Context())
	t.Cleanup(w.end)
	return w
}

// start starts a daemon and returns when it answers.
func (w *world) start(ctx context.Context) {
	cmd := exec.Command("soma", "serve")
	cmd.Env = append(os.Environ(), "SOMA_HOME="+w.home.Dir())
	cmd.Stdout, cmd.Stderr = w.log, w.log
	said := make(chan struct{})
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	go func() {
		defer close(said)
		_ = w.keep(ctx, func() error { return w.client.Health(ctx) })
	}()
	<-said
	w.mu.Lock()
	w.daemon = cmd
	w.mu.Unlock()
}

// kill ends the daemon as a crash does and starts another one.
func (w *world) kill(ctx context.Context) {
	w.mu.Lock()
	cmd := w.daemon
	w.mu.Unlock()
	_ = cmd.Process.Signal(syscall.SIGKILL)
	_ = cmd.Wait()
	w.start(ctx)
}

// end stops the daemon with its python kernels.
func (w *world) end() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	stop := exec.CommandContext(ctx, "soma", "stop", "--kernels")
	stop.Env = append(os.Environ(), "SOMA_HOME="+w.home.Dir())
	if out, err := stop.CombinedOutput(); err != nil {
		w.t.Errorf("cannot stop the daemon: %v\n%s", err, out)
	}
	_ = w.daemon.Process.Kill()
	_ = w.daemon.Wait()
}

// keep repeats a request while no daemon answers.
func (w *world) keep(ctx context.Context, request func() error) error {
	for gap := time.NewTicker(5 * time.Millisecond); ; {
		err := request()
		var refusal *wire.Error
		away := errors.Is(err, client.ErrLost) || errors.Is(err, client.ErrStopped) ||
			errors.As(err, &refusal) && (refusal.Code == wire.Stopping || refusal.Code == wire.Unavailable)
		if !away {
			gap.Stop()
			return err
		}
		select {
		case <-gap.C: // between two tries
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// worker runs cells in one session and knows what must have come of them.
type worker struct {
	w       *world
	session string
	folder  string
	at      wire.Cursor
	ends    map[string]int // events that tell the end of a cell
	cells   int
	jobs    int
}

// cell runs the code of the next cell and checks its outcome. The kinds of cells bring about all kinds of frames.
func (k *worker) cell(ctx context.Context) error {
	i := k.cells
	k.cells++
	code := fmt.Sprintf("open('cells', 'a').write('%d\\n')\nprint('out', %d)\n", i, i)
	value := fmt.Sprint(i)
	run := wire.RunCell{}
	switch i % 5 {
	case 0:
		code += value
	case 1: // a host call
		code += fmt.Sprintf("found = await cells.list(100)\n%d if len(found) > %d else len(found)", i, min(i, 90)-1)
	case 2: // a job, from its start to its end
		code += fmt.Sprintf("job = run(\"echo %d >> jobs; echo out %d\")\nawait job\n%d if job.exit_code == 0 else job.read()", i, i, i)
		k.jobs++
	case 3: // a change of a file, with its trace
		code += fmt.Sprintf("files.write('file', 'text %d\\n')\n%d", i, i)
	case 4: // behind its call
		run.BackgroundMS = 1
		code += fmt.Sprintf("await asyncio.sleep(0.02)\n%d", i)
	}
	run.Code = code
	id := fmt.Sprintf("cell-%d", i)
	var cell wire.Cell
	err := k.w.keep(ctx, func() (err error) { cell, err = k.w.client.RunCell(ctx, k.session, id, run); return err })
	if err != nil {
		return fmt.Errorf("cell %d: %w", i, err)
	}
	for k.ends[cell.ID] == 0 {
		if err := k.follow(ctx); err != nil {
			return fmt.Errorf("cell %d: %w", i, err)
		}
	}
	name := cell.ID // an answer that is lost leaves no cell
	if err := k.w.keep(ctx, func() (err error) { cell, err = k.w.client.Cell(ctx, name); return err }); err != nil {
		return err
	}
	if cell.Status != "ok" || cell.Value == nil || *cell.Value != value {
		return fmt.Errorf("cell %d (%s) ended as %+v", i, cell.ID, cell)
	}
	var page wire.OutputPage
	if err := k.w.keep(ctx, func() (err error) { page, err = k.w.client.Output(ctx, cell.ID, 0, 0); return err }); err != nil {
		return err
	}
	if want := fmt.Sprintf("out %d\n", i); page.Text != want {
		return fmt.Errorf("cell %d printed %q, want %q", i, page.Text, want)
	}
	return nil
}

// follow takes the next event that tells the end of a cell.
func (k *worker) follow(ctx context.Context) error {
	return k.w.keep(ctx, func() (err error) {
		_, err = k.w.client.Follow(ctx, k.session, k.at, func(f client.Frame) error {
			k.at = f.Cursor
			if f.Reset != nil {
				return errors.New("the events could not be followed")
			}
			if f.Event == nil || f.Event.Kind != wire.CellEnded {
				return nil
			}
			var b wire.CellEvent
			if err := json.Unmarshal(f.Event.Body, &b); err != nil {
				return err
			}
			k.ends[b.Cell.ID]++
			return client.ErrEnough
		})
		return err
	})
}

// P-210, P-014, P-017, P-018, P-020, P-023, P-123: cut at every unit and every byte in both directions between a real
// daemon and real kernels, with kills of the daemon: no cell, outcome, job, trace or host call is lost, none happens twice.
func TestCuts(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p := newPlan(*cuts)
	began := time.Now()
	var workers []*worker
	for i := range kernels {
		k := &worker{w: w, session: fmt.Sprintf("link-%d", i), folder: t.TempDir(), ends: map[string]int{}}
		workers = append(workers, k)
		open := wire.OpenSession{Kind: wire.SessionPy, Workspace: k.folder, Python: python(t)}
		if err := w.keep(ctx, func() error { _, err := w.client.OpenSession(ctx, k.session, open); return err }); err != nil {
			t.Fatal(err)
		}
		if err := within(ctx, k.cell); err != nil { // its kernel is there then
			t.Fatal(err)
		}
	}
	runs, err := filepath.Glob(filepath.Join(w.home.Dir(), "run", "*", "kernel.sock"))
	if err != nil || len(runs) != kernels {
		t.Fatalf("%d kernels: %v", len(runs), err)
	}
	for _, socket := range runs {
		x, err := newProxy(ctx, filepath.Dir(socket), p)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := x.close(); err != nil {
				t.Error(err)
			}
		})
	}
	w.kill(ctx) // the next daemon comes by the proxies
	var all sync.WaitGroup
	for _, k := range workers {
		all.Go(func() {
			for {
				select {
				case <-p.ready:
					return
				case <-ctx.Done():
					return
				default:
				}
				if err := within(ctx, k.cell); err != nil {
					t.Errorf("%s: %v", k.session, err)
					cancel()
					return
				}
			}
		})
	}
	killed := 1
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		made, _, _ := p.count()
		if killed < *kills && made >= killed*(*cuts)/(*kills+1) {
			killed++
			w.kill(ctx)
			continue
		}
		select {
		case <-tick.C: // look at the count again
			continue
		case <-p.ready:
		case <-ctx.Done():
		}
		tick.Stop()
		break
	}
	all.Wait()
	cells, jobs := 0, 0
	for _, k := range workers {
		k.check(t)
		cells += k.cells
		jobs += k.jobs
	}
	made, places, whole := p.count()
	t.Logf("%d cuts at %d places, %d of %d units at every byte; %d kills of the daemon; %d cells and %d jobs in %s",
		made, places, whole, int(ways)*units, killed, cells, jobs, time.Since(began).Round(time.Second))
	if t.Failed() {
		log, _ := os.ReadFile(w.log.Name())
		t.Logf("the daemon's log ends:\n%s", log[max(0, len(log)-8000):])
	}
}

// check compares what ran in the kernel with what was asked for.
func (k *worker) check(t *testing.T) {
	t.Helper()
	var cells, jobs bytes.Buffer
	for i := range k.cells {
		fmt.Fprintf(&cells, "%d\n", i)
		if i%5 == 2 {
			fmt.Fprintf(&jobs, "%d\n", i)
		}
	}
	for name, want := range map[string]string{"cells": cells.String(), "jobs": jobs.String()} {
		got, err := os.ReadFile(filepath.Join(k.folder, name))
		if err != nil && want != "" || string(got) != want {
			t.Errorf("%s: %s ran as %.300q, want %.300q (%v)", k.session, name, got, want, err)
		}
	}
	for id, n := range k.ends {
		if n != 1 {
			t.Errorf("%s: the end of cell %s was told %d times", k.session, id, n)
		}
	}
	if len(k.ends) != k.cells {
		t.Errorf("%s: %d ends of %d cells", k.session, len(k.ends), k.cells)
	}
}

func within(ctx context.Context, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return fn(ctx)
}

func python(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		t.Fatalf("the kernels need python3: %v", err)
	}
	return strings.TrimSpace(string(out))
}
