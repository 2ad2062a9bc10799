package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"soma/client"
	"soma/internal/config"
	"soma/internal/store/postgres/postgrestest"
	"soma/wire"
)

// patience bounds every wait.
const patience = 60 * time.Second

// password stands in the connection string of every daemon. The server asks for none; it must show nowhere.
const password = "sesame-9f3b71"

// program is the binary under test.
var program string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "cluster")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	program = filepath.Join(dir, "soma")
	cmd := exec.Command("go", "build", "-ldflags", "-s -w", "-o", program, "soma/cmd/soma")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	code := 1
	if out, err := cmd.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "cannot build: %v\n%s", err, out)
	} else {
		code = postgrestest.Main(m)
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// cluster is a database with the daemons on it.
type cluster struct {
	t     *testing.T
	dir   string
	work  string // the workspace of all sessions
	dsn   string // with the password
	lease time.Duration
	slots int // of each daemon
}

func newCluster(t *testing.T, lease time.Duration) *cluster {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, dir: dir, work: filepath.Join(dir, "work"), dsn: postgrestest.Database(t) + " password=" + password, lease: lease, slots: 8}
	if err := os.Mkdir(c.work, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { killAll(t, dir) })
	return c
}

// killAll ends the OS processes that name a folder.
func killAll(t *testing.T, folder string) {
	for _, pid := range processesOf(t, folder) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// processesOf finds the OS processes that name a folder in their arguments or environment.
func processesOf(t *testing.T, folder string) (pids []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Error(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		// What cannot be read any more is gone.
		args, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		vars, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if strings.Contains(string(args), folder+"/") || strings.Contains(string(vars), "="+folder+"/") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// node is one home with its daemon.
type node struct {
	*client.Client
	c    *cluster
	home config.Home
	id   string // of the node, once it serves
	cmd  *exec.Cmd
	log  *log
}

// log is what a daemon writes, over all of its OS processes.
type log struct {
	mu    sync.Mutex
	text  strings.Builder
	lines chan string // of the newest OS process
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (c *cluster) env(home config.Home) []string {
	env := []string{
		"HOME=" + c.dir, "SOMA_HOME=" + home.Dir(), "SOMA_STORE=" + c.dsn, "SOMA_TEST_LEASE=" + c.lease.String(), "SOMA_MAX_CONCURRENT=" + strconv.Itoa(c.slots),
	}
	for _, name := range []string{"PATH", "LANG", "TMPDIR"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// start makes a home and starts its daemon.
func (c *cluster) start(name string, args ...string) *node {
	c.t.Helper()
	home, err := config.HomeAt(filepath.Join(c.dir, name))
	if err != nil {
		c.t.Fatal(err)
	}
	n := &node{c: c, home: home, log: &log{}}
	n.Client, err = client.New(client.Options{
		Dial: func(ctx context.Context) (net.Conn, error) { return config.DialSocket(ctx, home.Socket()) },
		Token: func() (string, error) {
			token, err := home.ReadToken()
			return token.Reveal(), err
		},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(n.Close)
	n.run(args...)
	c.t.Cleanup(func() {
		for line := range strings.Lines(n.log.String()) {
			lost := strings.Contains(line, "fenced: another owner") // what a daemon says that has lost its places
			if strings.Contains(line, "level=ERROR") && !lost || strings.Contains(line, "DATA RACE") || strings.HasPrefix(line, "panic") {
				c.t.Errorf("%s says: %s", name, line)
			}
		}
		if c.t.Failed() {
			c.t.Logf("log of %s:\n%s", name, n.log)
		}
	})
	return n
}

// run starts the daemon and waits until it serves.
func (n *node) run(args ...string) {
	t := n.c.t
	t.Helper()
	n.cmd = exec.Command(program, append([]string{"serve", "--background"}, args...)...)
	n.cmd.Env = n.c.env(n.home)
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL} // a test that is killed stops nothing
	out, err := n.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := n.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan string, 1024)
	n.log.lines = read
	go func() {
		defer close(read)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			n.log.mu.Lock()
			n.log.text.WriteString(lines.Text() + "\n")
			n.log.mu.Unlock()
			select {
			case read <- lines.Text():
			default: // nobody waits for a line
			}
		}
	}()
	n.says("msg=serving ")
	text, err := os.ReadFile(n.home.NodeFile())
	if err != nil && n.c.dsn != "" {
		t.Fatal(err)
	}
	n.id = strings.TrimSpace(string(text))
}

// says waits for a line of the daemon's log that contains words.
func (n *node) says(words string) {
	t := n.c.t
	t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		select {
		case line, ok := <-n.log.lines:
			if !ok {
				t.Fatalf("the daemon ended before it said %q:\n%s", words, n.log)
			}
			if strings.Contains(line, words) {
				return
			}
		case <-limit.C:
			t.Fatalf("the daemon does not say %q:\n%s", words, n.log)
		}
	}
}

func (n *node) signal(s syscall.Signal) {
	n.c.t.Helper()
	if err := n.cmd.Process.Signal(s); err != nil {
		n.c.t.Fatal(err)
	}
}

// kill ends the daemon with SIGKILL; its python kernels live on.
func (n *node) kill() {
	n.signal(syscall.SIGKILL)
	_ = n.cmd.Wait()
}

// soma runs the program on this home.
func (n *node) soma(args ...string) (out string, err error) {
	ctx, cancel := context.WithTimeout(n.c.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env, cmd.Dir = n.c.env(n.home), n.c.work
	b, err := cmd.CombinedOutput()
	return string(b), err
}

func (n *node) mustSoma(args ...string) string {
	n.c.t.Helper()
	out, err := n.soma(args...)
	if err != nil {
		n.c.t.Fatalf("soma %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// until waits until what holds is true. It looks again after each beat of a ticker: what is waited for is in other OS processes.
func (c *cluster) until(what string, holds func() (bool, error)) {
	c.t.Helper()
	end := time.NewTimer(patience)
	defer end.Stop()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		ok, err := holds()
		if ok {
			return
		}
		select {
		case <-look.C:
		case <-end.C:
			c.t.Fatalf("not within %s: %s (%v)", patience, what, err)
		}
	}
}

// shared waits until each of the nodes holds its share of the places.
func (c *cluster) shared(nodes ...*node) {
	c.t.Helper()
	c.until(fmt.Sprintf("%d nodes hold their shares", len(nodes)), func() (bool, error) {
		for _, n := range nodes {
			st, err := n.Status(c.t.Context())
			if err != nil {
				return false, err
			}
			if len(st.Nodes) != len(nodes) {
				return false, fmt.Errorf("%s knows of %+v", n.id, st.Nodes)
			}
			for _, other := range st.Nodes {
				if !other.Alive || other.Places < 256/len(nodes)-len(nodes) {
					return false, fmt.Errorf("%s knows of %+v", n.id, st.Nodes)
				}
			}
		}
		return true, nil
	})
}

// script writes a script and returns the name of its model.
func (c *cluster) script(name, text string) string {
	c.t.Helper()
	file := filepath.Join(c.dir, name+".yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return "script:" + file
}

// sessionAt opens sessions through one node until one is held by another.
func (c *cluster) sessionAt(through, holder *node, name string, req wire.OpenSession) string {
	c.t.Helper()
	for i := range 64 {
		id := fmt.Sprintf("%s-%d", name, i)
		if _, err := through.OpenSession(c.t.Context(), id, req); err != nil {
			c.t.Fatal(err)
		}
		s, err := through.Session(c.t.Context(), id)
		if err != nil {
			c.t.Fatal(err)
		}
		if s.Node == holder.id {
			return id
		}
	}
	c.t.Fatal("no session is held by the node")
	return ""
}

// follow follows a session through a node, and through what its connections suffer, until fn returns true.
func (n *node) follow(session string, fn func(client.Frame) bool) error {
	ctx, cancel := context.WithTimeout(n.c.t.Context(), patience)
	defer cancel()
	var at wire.Cursor
	for {
		var err error
		at, err = n.Client.Follow(ctx, session, at, func(f client.Frame) error {
			if fn(f) {
				return client.ErrEnough
			}
			return nil
		})
		if !errors.Is(err, client.ErrLost) {
			return err
		}
		again := time.NewTimer(20 * time.Millisecond)
		select {
		case <-again.C:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}
