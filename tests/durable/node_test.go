package durable_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/store/postgres/postgrestest"
	"soma/tests/durable/counter"
)

// patience bounds every wait.
const patience = 60 * time.Second

// program is the node, built with the tag crash at its first use.
var program = struct {
	sync.Once
	dir, path string
	err       error
}{}

func TestMain(m *testing.M) {
	code := postgrestest.Main(m)
	if program.dir != "" {
		_ = os.RemoveAll(program.dir)
	}
	os.Exit(code)
}

func build(t testing.TB) string {
	t.Helper()
	program.Do(func() {
		if program.dir, program.err = os.MkdirTemp("", "durable"); program.err != nil {
			return
		}
		program.path = filepath.Join(program.dir, "node")
		cmd := exec.Command("go", "build", "-tags", "crash", "-o", program.path, "soma/tests/durable/node")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			program.err = fmt.Errorf("cannot build: %w\n%s", err, out)
		}
	})
	if program.err != nil {
		t.Fatal(program.err)
	}
	return program.path
}

// request and line are those of the node.
type request struct {
	N    int         `json:"n"`
	Op   string      `json:"op"`
	ID   ident.ID    `json:"id,omitzero"`
	Key  string      `json:"key,omitempty"`
	Add  counter.Add `json:"add,omitzero"`
	Many int         `json:"many,omitempty"`
}

type line struct {
	N     int      `json:"n"`
	Value int64    `json:"value"`
	Error string   `json:"error"`
	Event string   `json:"event"`
	ID    ident.ID `json:"id"`
}

// setup is what a node is started with, again after each death.
type setup struct {
	dsn   string
	name  string
	lease time.Duration
	env   []string
	via   []string // a program that runs the node somewhere else
}

// process is one OS process of a node.
type process struct {
	t    testing.TB
	cmd  *exec.Cmd
	in   io.WriteCloser
	done chan struct{} // its output has ended
	log  *strings.Builder

	mu      sync.Mutex
	last    int
	waiting map[int]chan line
	events  []line
	more    *sync.Cond
	over    bool
	ended   sync.Once
}

var errDied = errors.New("the node died")

// start starts a node and waits until it has begun a life, unless it dies before.
func start(t testing.TB, s setup, env ...string) *process {
	t.Helper()
	args := []string{"-store", s.dsn, "-name", s.name, "-lease", s.lease.String()}
	if path, ok := strings.CutPrefix(s.dsn, "sqlite:"); ok {
		args = append(args, "-inflight", path+".inflight")
	} else {
		args = append(args, "-inflight", filepath.Join(nodeDir(t, s.name), "inflight"))
	}
	p := &process{t: t, done: make(chan struct{}), waiting: map[int]chan line{}, log: &strings.Builder{}}
	p.more = sync.NewCond(&p.mu)
	words := slices.Concat(s.via, []string{build(t)}, args)
	p.cmd = exec.Command(words[0], words[1:]...)
	p.cmd.Env = append(append(os.Environ(), s.env...), env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p.cmd.Stderr = p.log
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go p.read(out)
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			text := p.log.String()
			t.Logf("the last of node %s:\n%s", s.name, text[max(0, len(text)-3000):])
		}
	})
	p.event("began", 1)
	return p
}

// dirs are the folders of nodes, which outlive their processes.
var dirs sync.Map

func nodeDir(t testing.TB, name string) string {
	key := t.Name() + "/" + name
	if dir, ok := dirs.Load(key); ok {
		return dir.(string)
	}
	dir := t.TempDir()
	dirs.Store(key, dir)
	t.Cleanup(func() { dirs.Delete(key) })
	return dir
}

func (p *process) read(out io.Reader) {
	defer close(p.done)
	in := bufio.NewScanner(out)
	for in.Scan() {
		var l line
		if json.Unmarshal(in.Bytes(), &l) != nil {
			continue // cut short by its death
		}
		p.mu.Lock()
		if l.Event != "" {
			p.events = append(p.events, l)
			p.more.Broadcast()
		} else if c := p.waiting[l.N]; c != nil {
			delete(p.waiting, l.N)
			c <- l
		}
		p.mu.Unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	for _, c := range p.waiting {
		close(c)
	}
	p.waiting = nil
	p.more.Broadcast()
}

// event waits for the n-th event of a name, counted from 1, and returns it; ok is false when the process died.
func (p *process) event(name string, n int) (l line, ok bool) {
	return p.until(func(events []line) (line, bool) {
		seen := 0
		for _, e := range events {
			if e.Event == name {
				if seen++; seen == n {
					return e, true
				}
			}
		}
		return line{}, false
	})
}

// until waits until the events are as asked.
func (p *process) until(found func([]line) (line, bool)) (l line, ok bool) {
	p.t.Helper()
	stop := context.AfterFunc(p.t.Context(), p.more.Broadcast)
	defer stop()
	late := time.AfterFunc(patience, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.t.Errorf("the node has not said what was waited for, but %+v", p.events)
		p.over = true
		p.more.Broadcast()
	})
	defer late.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if l, ok := found(p.events); ok {
			return l, true
		}
		if p.over {
			return line{}, false
		}
		p.more.Wait()
	}
}

// held waits until the node holds as many places as asked.
func (p *process) held(places int64) bool {
	p.t.Helper()
	_, ok := p.until(func(events []line) (line, bool) {
		for i := len(events) - 1; i >= 0; i-- {
			if e := events[i]; e.Event == "held" || e.Event == "began" || e.Event == "lost" {
				return e, e.Event == "held" && e.Value == places
			}
		}
		return line{}, false
	})
	return ok
}

func (p *process) count(event string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, e := range p.events {
		if e.Event == event {
			n++
		}
	}
	return n
}

// begin sends a request; the channel gets its answer, or is closed when the process dies.
func (p *process) begin(r request) <-chan line {
	c := make(chan line, 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		close(c)
		return c
	}
	p.last++
	r.N = p.last
	p.waiting[r.N] = c
	b, err := json.Marshal(r)
	if err != nil {
		p.t.Error(err)
	}
	_, _ = p.in.Write(append(b, '\n')) // a process that died does not answer either
	return c
}

// ask sends a request and waits for its answer.
func (p *process) ask(ctx context.Context, r request) (int64, error) {
	select {
	case l, ok := <-p.begin(r):
		if !ok {
			return 0, errDied
		}
		if l.Error != "" {
			return 0, errors.New(l.Error)
		}
		return l.Value, nil
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}

// kill ends the process at once.
func (p *process) kill() { _ = p.cmd.Process.Kill(); p.wait() }

// wait waits for the end and reports whether SIGKILL was it.
func (p *process) wait() (killed bool) {
	late := time.AfterFunc(patience, func() {
		p.t.Error("the node does not end")
		_ = p.cmd.Process.Kill()
	})
	<-p.done
	late.Stop()
	p.ended.Do(func() { _ = p.cmd.Wait() })
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// stop ends the process in order.
func (p *process) stop() {
	p.t.Helper()
	_ = p.in.Close()
	late := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	p.wait()
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		p.t.Errorf("the node ended with %v", p.cmd.ProcessState)
	}
}

// check compares a database with the sums that must be there.
func check(t testing.TB, dsn string, want map[neuron.ID]int64) {
	t.Helper()
	s, err := counter.Open(t.Context(), dsn, counter.Small(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := counter.Check(t.Context(), s, want); err != nil {
		t.Errorf("at rest: %v", err)
	}
}

// rest waits until nothing is on its way in the database.
func rest(t testing.TB, dsn string) {
	t.Helper()
	s, err := counter.Open(t.Context(), dsn, counter.Small(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	late := time.After(patience)
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		n := 0
		err := s.Query(t.Context(), "select (select count(*) from outbox) + (select count(*) from execution) + (select count(*) from call)", nil,
			func(scan func(...any) error) error { return scan(&n) })
		if err == nil && n == 0 {
			return
		}
		select {
		case <-late:
			t.Errorf("%d rows are still on their way, %v", n, err)
			return
		case <-again.C:
		}
	}
}
