package osproc

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// start runs a shell command in a group of its own and returns once it has printed a line.
func start(t *testing.T, command string, env ...string) (p *Process, line string) {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", command)
	cmd.Env = append([]string{"PATH=/usr/bin:/bin"}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 100)
	n, err := out.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	if p, err = Open(cmd.Process.Pid, ""); err != nil {
		t.Fatal(err)
	}
	p.Child(cmd)
	t.Cleanup(func() {
		_ = unix.Kill(-p.PGID, unix.SIGKILL)
		_ = p.WatchExit(t.Context())
		_ = cmd.Wait()
		p.Close()
	})
	return p, strings.TrimSpace(string(b[:n]))
}

// P-008, P-085: a group ends with all of its processes, whatever they ignore; one whose leader is another process by now is left alone.
func TestEndGroups(t *testing.T) {
	p, _ := start(t, `trap '' TERM; sleep 600 & echo; wait; wait`)
	other := Group{p.PGID, p.Leader + "1"}
	if err := other.End(t.Context()); err != nil || p.Gone() || other.Led() || !p.Group().Led() {
		t.Errorf("another's group: %v", err)
	}
	if _, err := Open(p.PID, p.Leader+"1"); err == nil {
		t.Error("another process was opened")
	}
	if err := p.Group().End(t.Context()); err != nil || len(living([]Group{p.Group()})) != 0 || !p.Gone() {
		t.Errorf("it lives on: %v", err)
	}
}

// P-090: processes are found by their mark wherever they went, and no others are.
func TestMarked(t *testing.T) {
	for name, end := range map[string]func(mark string) error{
		"end":  func(mark string) error { return EndMarked(t.Context(), mark) },
		"kill": func(mark string) error { KillMarked(mark); return nil },
	} {
		mark := "SOMA_TEST=" + name + filepath.Base(t.TempDir())
		p, _ := start(t, `setsid sleep 600 & echo; wait`, mark)
		apart, _ := start(t, `echo; exec sleep 600`, mark+"x")
		if err := end(mark); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		left := marked(mark) // one that is killed needs a moment to be gone
		awaitGone(t.Context(), append(left, p), time.Minute)
		for _, left := range left {
			if !left.Gone() {
				t.Errorf("%s: pid %d lives on", name, left.PID)
			}
			left.Close()
		}
		if !p.Gone() || apart.Gone() {
			t.Errorf("%s: gone %v, the other %v", name, p.Gone(), apart.Gone())
		}
	}
}

// P-004: who holds a lock is found without taking it.
func TestLockHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if pid, err := LockHolder(path); pid != 0 || err != nil {
		t.Errorf("of no file: %d, %v", pid, err)
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if pid, err := LockHolder(path); pid != 0 || err != nil {
		t.Errorf("of a free one: %d, %v", pid, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if pid, err := LockHolder(path); pid != os.Getpid() || err != nil {
		t.Errorf("of a held one: %d, %v", pid, err)
	}
}
