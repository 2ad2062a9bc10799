//go:build crash

package system_test

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

	"soma/client"
	"soma/internal/config"
)

// python is the interpreter of all cells.
const python = "/usr/bin/python3"

// build makes the program with its crash points.
func build(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "soma")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-tags", "crash", "-ldflags", "-s -w", "-o", bin, "soma/cmd/soma")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cannot build: %v\n%s", err, out)
	}
	return bin
}

// daemon is one OS process that serves a home.
type daemon struct {
	cmd     *exec.Cmd
	serving chan struct{} // closed when it listens
	exited  chan struct{} // closed when it is gone; cmd.ProcessState says how

	mu  sync.Mutex
	log strings.Builder
}

// environ is the environment of every program here: that of the test without what would lead elsewhere, and the home.
func environ(home config.Home, more ...string) []string {
	var env []string
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "SOMA_") || strings.HasPrefix(name, "OPENAI_") || name == "OLLAMA_HOST" || name == "VIRTUAL_ENV" {
			continue
		}
		env = append(env, entry)
	}
	return append(append(env, "SOMA_HOME="+home.Dir()), more...)
}

func startDaemon(bin string, env []string) (*daemon, error) {
	d := &daemon{cmd: exec.Command(bin, "serve", "--background"), serving: make(chan struct{}), exited: make(chan struct{})}
	d.cmd.Env = env
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL} // a test that is killed stops nothing
	out, err := d.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(d.exited)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 16<<20)
		for serves := false; lines.Scan(); {
			d.mu.Lock()
			d.log.WriteString(lines.Text() + "\n")
			d.mu.Unlock()
			if !serves && strings.Contains(lines.Text(), "msg=serving ") {
				serves = true
				close(d.serving)
			}
		}
		_ = d.cmd.Wait() // its state is asked for
	}()
	return d, nil
}

// serves waits until the daemon listens; one that ends instead is an error.
func (d *daemon) serves(ctx context.Context) error {
	select {
	case <-d.serving:
		return nil
	case <-d.exited:
		return fmt.Errorf("the daemon ended at its start (%v):\n%s", d.cmd.ProcessState, d.text())
	case <-ctx.Done():
		return fmt.Errorf("the daemon does not listen: %w:\n%s", context.Cause(ctx), d.text())
	}
}

// gone waits for the daemon's end and reports whether SIGKILL was it.
func (d *daemon) gone(ctx context.Context) (killed bool, err error) {
	select {
	case <-d.exited:
	case <-ctx.Done():
		return false, fmt.Errorf("the daemon does not end: %w:\n%s", context.Cause(ctx), d.text())
	}
	status := d.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return status.Signaled() && status.Signal() == syscall.SIGKILL, nil
}

func (d *daemon) text() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.log.String()
}

// dial returns a client of a home.
func dial(home config.Home) (*client.Client, error) {
	return client.New(client.Options{
		Dial: func(ctx context.Context) (net.Conn, error) { return config.DialSocket(ctx, home.Socket()) },
		Token: func() (string, error) {
			token, err := home.ReadToken()
			return token.Reveal(), err
		},
	})
}

// live is an OS process that belongs to a place.
type live struct {
	pid     int
	command string
}

// processesOf finds all OS processes that name one of the folders in their command line or environment, or work in it.
func processesOf(folders ...string) ([]live, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []live
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		at := filepath.Join("/proc", e.Name())
		// What cannot be read any more is gone.
		command, _ := os.ReadFile(filepath.Join(at, "cmdline"))
		env, _ := os.ReadFile(filepath.Join(at, "environ"))
		cwd, _ := os.Readlink(filepath.Join(at, "cwd"))
		for _, folder := range folders {
			if strings.Contains(string(command), folder) || strings.Contains(string(env), folder) || cwd == folder ||
				strings.HasPrefix(cwd, folder+"/") {
				found = append(found, live{pid, strings.ReplaceAll(string(command), "\x00", " ")})
				break
			}
		}
	}
	return found, nil
}

// endAll kills what a failed test has left in its folders.
func endAll(t *testing.T, folders ...string) {
	t.Cleanup(func() {
		left, err := processesOf(folders...)
		if err != nil {
			t.Error(err)
		}
		for _, p := range left {
			if err := syscall.Kill(p.pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				t.Error(err)
			}
		}
	})
}
