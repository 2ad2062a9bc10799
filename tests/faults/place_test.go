package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"soma/client"
	"soma/internal/config"
)

// patience bounds every wait.
const patience = 60 * time.Second

// program is the binary under test.
var program string

// TestMain builds the program once.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "faults")
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
		code = m.Run()
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// place is a home and a workspace of their own. Nothing of a place is left when its test has ended.
type place struct {
	t    *testing.T
	home config.Home
	dir  string // the workspace
	env  []string
	in   string   // the standard input of the programs
	via  []string // a program that runs others somewhere else
}

func newPlace(t *testing.T) *place {
	t.Helper()
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p := &place{t: t, dir: filepath.Join(dir, "work")}
	p.at(filepath.Join(dir, "home"))
	for _, name := range []string{"PATH", "LANG", "TMPDIR"} {
		if v, ok := os.LookupEnv(name); ok {
			p.env = append(p.env, name+"="+v)
		}
	}
	p.env = append(p.env, "HOME="+dir)
	if err := os.Mkdir(p.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { killAll(t, dir) })
	return p
}

// at gives the place another home.
func (p *place) at(home string) {
	h, err := config.HomeAt(home)
	if err != nil {
		p.t.Fatal(err)
	}
	p.home = h
}

// killAll ends the OS processes that name a folder.
func killAll(t *testing.T, folder string) {
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
		if bytes.Contains(args, []byte(folder+"/")) || bytes.Contains(vars, []byte("="+folder+"/")) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// write makes a file in the workspace and returns its path.
func (p *place) write(name, text string) string {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		p.t.Fatal(err)
	}
	return path
}

// makeHome makes the home with its folders, as a daemon would.
func (p *place) makeHome() {
	p.t.Helper()
	if err := p.home.Create(); err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) command(args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	p.t.Cleanup(cancel)
	line := append(append([]string{}, p.via...), append([]string{program}, args...)...)
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Dir, cmd.Stdin = p.dir, strings.NewReader(p.in)
	cmd.Env = append(p.env, "SOMA_HOME="+p.home.Dir())
	return cmd
}

// result is what a program has left.
type result struct {
	t        *testing.T
	line     string
	code     int
	out, err string
}

// run runs the program to its end.
func (p *place) run(args ...string) result {
	p.t.Helper()
	cmd := p.command(args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Fatalf("soma %s: %v", strings.Join(args, " "), err)
	}
	line := "soma " + strings.Join(args, " ")
	return result{p.t, line[:min(len(line), 200)], cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// ends checks the exit code.
func (r result) ends(code int) result {
	r.t.Helper()
	if r.code != code {
		r.t.Errorf("%s: exit code %d, want %d; it printed %.2000q and said %.2000q", r.line, r.code, code, r.out, r.err)
	}
	return r
}

// usual are the lines that tell of a daemon's start, and its log.
var usual = regexp.MustCompile(`(?m)^(soma: started the daemon |time=\S+ level=INFO ).*\n`)

// says checks that the program said one line, besides the usual ones, and that it matches.
func (r result) says(pattern string) result {
	r.t.Helper()
	text := usual.ReplaceAllString(r.err, "")
	if !regexp.MustCompile(`^soma: `+pattern+`\n$`).MatchString(text) || strings.Count(text, "\n") != 1 {
		r.t.Errorf("%s: it said %.2000q, want one line that matches %q", r.line, text, pattern)
	}
	return r
}

// prints checks the standard output.
func (r result) prints(text string) result {
	r.t.Helper()
	if r.out != text {
		r.t.Errorf("%s: it printed %.2000q, want %q (it said %.2000q)", r.line, r.out, text, r.err)
	}
	return r
}

// running is a program that runs beside the test.
type running struct {
	t    *testing.T
	cmd  *exec.Cmd
	more *sync.Cond
	text strings.Builder // standard output and error together
	over bool
}

// begin starts the program and lets it run.
func (p *place) begin(args ...string) *running {
	p.t.Helper()
	r := &running{t: p.t, cmd: p.command(args...), more: sync.NewCond(new(sync.Mutex))}
	in, out, err := os.Pipe()
	if err != nil {
		p.t.Fatal(err)
	}
	r.cmd.Stdout, r.cmd.Stderr = out, out
	err = r.cmd.Start()
	out.Close()
	if err != nil {
		p.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer in.Close()
		b := make([]byte, 4096)
		for {
			n, err := in.Read(b)
			r.more.L.Lock()
			r.text.Write(b[:n])
			r.over = err != nil
			r.more.Broadcast()
			r.more.L.Unlock()
			if err != nil {
				return
			}
		}
	}()
	p.t.Cleanup(func() { <-done })
	p.t.Cleanup(func() { _ = r.cmd.Process.Kill() })
	return r
}

// says waits until what the program has written matches.
func (r *running) says(pattern string) {
	r.t.Helper()
	expect := regexp.MustCompile(pattern)
	r.more.L.Lock()
	defer r.more.L.Unlock()
	for !expect.MatchString(r.text.String()) {
		if r.over {
			r.t.Fatalf("%s does not say %q but:\n%s", r.cmd, pattern, r.text.String())
		}
		r.more.Wait()
	}
}

// ends waits for the end and returns what was written.
func (r *running) ends(code int) string {
	r.t.Helper()
	r.more.L.Lock()
	for !r.over {
		r.more.Wait()
	}
	text := r.text.String()
	r.more.L.Unlock()
	_ = r.cmd.Wait() // its state is asked for
	if got := r.cmd.ProcessState.ExitCode(); got != code {
		r.t.Errorf("%s: it ended with %s, want %d:\n%s", r.cmd, r.cmd.ProcessState, code, text)
	}
	return text
}

// serve starts a daemon in the foreground and waits until it serves.
func (p *place) serve() *running {
	p.t.Helper()
	d := p.begin("serve")
	d.says(`msg=serving `)
	return d
}

// client speaks to the home's daemon.
func (p *place) client() *client.Client {
	p.t.Helper()
	c, err := client.New(client.Options{
		Dial: func(ctx context.Context) (net.Conn, error) { return config.DialSocket(ctx, p.home.Socket()) },
		Token: func() (string, error) {
			token, err := p.home.ReadToken()
			return token.Reveal(), err
		},
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(c.Close)
	return c
}

// until asks again until the answer is yes.
func (p *place) until(what string, yes func() bool) {
	p.t.Helper()
	deadline := time.After(patience)
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for !yes() {
		select {
		case <-deadline:
			p.t.Fatalf("waited %s for %s", patience, what)
		case <-again.C:
		}
	}
}

// exists reports whether a file of the workspace is there.
func (p *place) exists(name string) bool {
	_, err := os.Stat(filepath.Join(p.dir, name))
	return err == nil
}

func (p *place) read(path string) string {
	p.t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(text)
}

// fails checks that the standard error is what a cell's exception says.
func (r result) fails(text string) result {
	r.t.Helper()
	if usual.ReplaceAllString(r.err, "") != text+"\n" {
		r.t.Errorf("%s: it said %.2000q, want %q", r.line, r.err, text)
	}
	return r
}
