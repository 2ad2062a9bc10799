package supervise_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"soma/internal/config"
	"soma/internal/neuron"
	"soma/internal/osproc"
	"soma/internal/pykernel"
	"soma/internal/pykernel/bundle"
	"soma/internal/pykernel/pykerneltest"
	"soma/internal/pykernel/supervise"
)

// set changes columns of a kernel's row behind the supervisor's back.
type set struct {
	kernel, state, leader string
	pid                   int
}

func (set) SQL() string {
	return `update kernel set node = 'local', state = ?, os_pid = ?, pgid = ?, leader = ? where id = ?`
}

func (s set) Args() []any {
	return []any{s.state, int64(s.pid), int64(s.pid), s.leader, s.kernel}
}

// leave commits a python kernel with one cell that the running supervisor does not see, as if an earlier daemon had died
// right after the commit, and then changes its row.
func leave(t *testing.T, h *pykerneltest.Home, owner, code string, s set) (k *pykernel.InsertKernel, cell string) {
	t.Helper()
	k = h.Insert(owner)
	k.Node = "elsewhere"
	err := h.Commit(owner, func() []neuron.Op {
		row := *k
		f, c := h.Execute(k.ID, code, time.Minute)
		cell = c
		s.kernel = k.ID
		return []neuron.Op{&row, f, s}
	})
	if err != nil {
		t.Fatal(err)
	}
	return k, cell
}

// spawn starts python as the supervisor does and returns it with its standard input once it holds its lock: it waits for
// its token there.
func spawn(t *testing.T, h *pykerneltest.Home, k *pykernel.InsertKernel) (*exec.Cmd, io.WriteCloser) {
	t.Helper()
	b, err := bundle.Unpack(filepath.Join(h.Dir, "kernel-bundles"))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(h.Dir, "run", k.ID)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(k.Python, "-I", "-S", b.LauncherPath(), "--run", dir, "--bundle", b.Digest)
	cmd.Dir, cmd.Env = k.Workspace, pykerneltest.Env()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	token, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	reaped := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(reaped)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-reaped
	})
	h.Until("python holds its lock", func() bool {
		pid, err := osproc.LockHolder(filepath.Join(dir, "lock"))
		if err != nil {
			t.Fatal(err)
		}
		return pid == cmd.Process.Pid
	})
	return cmd, token
}

// P-004: a booting row without a process is booted again under its id; one whose process holds the lock is waited for
// until it listens.
func TestRecoverBooting(t *testing.T) {
	h := pykerneltest.New(t, nil)
	_, alone := leave(t, h, "a", "1", set{state: "booting"})
	k, adopted := leave(t, h, "b", "import os; os.getpid()", set{state: "booting"})
	h.Stop()
	cmd, token := spawn(t, h, k)
	h.Start()
	value(t, h.Outcome(alone), "1")
	if h.Outcomes(adopted) != 0 {
		t.Error("the cell ran before its kernel listened")
	}
	if _, err := io.WriteString(token, k.Token+"\n"); err != nil {
		t.Fatal(err)
	}
	value(t, h.Outcome(adopted), fmt.Sprint(cmd.Process.Pid))
}

// P-021, P-088: kernels that died while no daemon ran are found gone; what had begun there is unknown, what cannot have is
// not started, and one that was to be ended is ended.
func TestRecoverGone(t *testing.T) {
	h := pykerneltest.New(t, nil)
	kernel, cell := h.Open("a", "print('on', flush=True)\nimport asyncio\nawait asyncio.sleep(600)")
	h.Shown(cell, "on")
	value(t, h.Outcome(h.Run("a", kernel, "1", time.Minute)), "1") // its commit takes acknowledged frames along
	pid := h.Sup.List()[0].OSPID
	ended, late := leave(t, h, "b", "1", set{state: "ending"})
	h.Stop()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	h.Start()
	if m := h.Outcome(cell); m.Status != pykernel.CellUnknown {
		t.Errorf("outcome %+v", m)
	}
	h.Gone(kernel)
	if m := h.Outcome(late); m.Status != pykernel.CellNotStarted {
		t.Errorf("outcome %+v", m)
	}
	h.Gone(ended.ID)
}

// P-085: a recorded pid that another process has by now is neither attached nor signalled.
func TestRecoverSparesAReusedPID(t *testing.T) {
	h := pykerneltest.New(t, nil)
	other := exec.Command("sleep", "600")
	other.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = other.Process.Kill()
		_ = other.Wait()
	}()
	k, cell := leave(t, h, "a", "1", set{state: "running", pid: other.Process.Pid, leader: "1"})
	h.Restart()
	if m := h.Outcome(cell); m.Status != pykernel.CellUnknown {
		t.Errorf("outcome %+v", m)
	}
	h.Gone(k.ID)
	if !alive(other.Process.Pid) {
		t.Error("a process that is no python kernel was ended")
	}
}

// P-085: in a copy of a home, whose rows name the processes of the original, these are neither attached nor signalled; in
// the original a kernel whose cell has closed its lock is still found.
func TestRecoverSparesAnotherHome(t *testing.T) {
	original, h := pykerneltest.New(t, nil), pykerneltest.New(t, nil)
	kernel, cell := original.Open("a", "kept = 5; open('/proc/self/stat').read().rpartition(')')[2].split()[19]")
	start := original.Outcome(cell)
	if start.Value == nil {
		t.Fatalf("outcome %+v", start)
	}
	pid := original.Sup.List()[0].OSPID
	k, cell := leave(t, h, "a", "1", set{state: "running", pid: pid, leader: strings.Trim(*start.Value, "'")})
	h.Restart()
	if m := h.Outcome(cell); m.Status != pykernel.CellUnknown || !strings.Contains(m.Note, "belongs to another home") {
		t.Errorf("outcome %+v", m)
	}
	h.Gone(k.ID)
	unlock := `import os
for fd in os.listdir('/proc/self/fd'):
    try:
        if os.readlink('/proc/self/fd/' + fd).endswith('/lock'):
            os.close(int(fd))
    except OSError:
        pass
kept`
	value(t, original.Outcome(original.Run("a", kernel, unlock, time.Minute)), "5")
	original.Restart()
	value(t, original.Outcome(original.Run("a", kernel, "kept", time.Minute)), "5")
}

// P-082: a kernel that computes with the interpreter lock held when a new daemon comes is waited for, not given up.
func TestRecoverBusy(t *testing.T) {
	t.Parallel()
	h := pykerneltest.New(t, nil)
	kernel, cell := h.Open("a", "kept = 1")
	h.Outcome(cell)
	busy := h.Run("a", kernel, "import ctypes\nprint('on', flush=True)\nctypes.PyDLL(None).usleep(3_000_000)\nkept", time.Minute)
	h.Shown(busy, "on")
	h.Restart()
	value(t, h.Outcome(busy), "1")
}

// P-127, P-202: a kernel whose interpreter lock is held by a cell past its deadline cannot say hello to a new daemon: the
// daemon ends the cell by its signal, and the names stay.
func TestRecoverWedged(t *testing.T) {
	t.Parallel()
	h := pykerneltest.New(t, nil)
	kernel, cell := h.Open("a", "kept = 5")
	h.Outcome(cell)
	cell = h.Run("a", kernel, "import re\nprint('on', flush=True)\nre.match('(a+)+$', 'a' * 40 + 'b')", 500*time.Millisecond)
	h.Shown(cell, "on")
	h.Restart()
	if m := h.Outcome(cell); m.Status != pykernel.CellTimedOut {
		t.Errorf("outcome %+v", m)
	}
	value(t, h.Outcome(h.Run("a", kernel, "kept", time.Minute)), "5")
}

// P-001: what ends a kernel's process ends the kernel, also where a child of its holds the socket; nothing of its group stays.
func TestKernelLeavesAChild(t *testing.T) {
	h := pykerneltest.New(t, nil)
	file := filepath.Join(h.Workspace, "child")
	kernel, cell := h.Open("a", fmt.Sprintf(`import os, subprocess
import soma_guard; door = soma_guard.spawning(); door.__enter__()
for fd in range(3, 64):
    try:
        os.set_inheritable(fd, True)
    except OSError:
        pass
child = subprocess.Popen(["sleep", "600"], close_fds=False)
open(%q, "w").write(str(child.pid))
os._exit(3)`, file))
	if m := h.Outcome(cell); m.Status != pykernel.CellUnknown || !strings.Contains(m.Note, "status 3") {
		t.Errorf("outcome %+v", m)
	}
	h.Gone(kernel)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var child int
	if _, err := fmt.Sscan(string(text), &child); err != nil || alive(child) {
		t.Errorf("child %d is alive: %v, %v", child, alive(child), err)
	}
}

// P-004: a daemon that stops while its kernel boots leaves it; the next one finds it, wherever it is by then.
func TestStopWhileBooting(t *testing.T) {
	t.Parallel()
	h := pykerneltest.New(t, nil)
	for i := range 6 {
		_, cell := h.Open(fmt.Sprint("owner", i), fmt.Sprint(i))
		wait := time.NewTimer(time.Duration(i*i) * 4 * time.Millisecond)
		<-wait.C
		h.Restart()
		value(t, h.Outcome(cell), fmt.Sprint(i))
	}
}

// P-108: a kernel that nobody attends ends when its grace is over.
func TestGrace(t *testing.T) {
	t.Parallel()
	h := pykerneltest.New(t, func(o *supervise.Options) { o.Grace = time.Second })
	kernel, cell := h.Open("a", "1")
	h.Outcome(cell)
	pid := h.Sup.List()[0].OSPID
	h.Stop()
	h.Until("the end of the grace", func() bool { return !alive(pid) })
	h.Start()
	h.Gone(kernel)
}

// P-082, P-089: a kernel that is killed under an attached daemon is gone at once, with the reason.
func TestKernelKilled(t *testing.T) {
	h := pykerneltest.New(t, nil)
	kernel, cell := h.Open("a", "print('on', flush=True)\nimport asyncio\nawait asyncio.sleep(600)")
	h.Shown(cell, "on")
	if err := syscall.Kill(h.Sup.List()[0].OSPID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if m := h.Outcome(cell); m.Status != pykernel.CellUnknown || !strings.Contains(m.Note, "SIGKILL") {
		t.Errorf("outcome %+v", m)
	}
	if g := h.Gone(kernel); !strings.Contains(g.Reason, "SIGKILL") {
		t.Errorf("gone %+v", g)
	}
}

// P-002: a home that is too deep for a socket address works.
func TestDeepHome(t *testing.T) {
	dir := t.TempDir()
	for len(dir) < 150 {
		dir = filepath.Join(dir, "a-folder-with-a-long-name")
	}
	h := pykerneltest.At(t, dir, nil)
	_, cell := h.Open("a", "1")
	value(t, h.Outcome(cell), "1")
	h.Restart()
}

// P-001, P-003, I-53: the run directory is the person's alone, and the token is on no command line.
func TestRunDirectoryIsPrivate(t *testing.T) {
	h := pykerneltest.New(t, nil)
	kernel, cell := h.Open("a", "1")
	h.Outcome(cell)
	dir := filepath.Join(h.Dir, "run", kernel)
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) < 3 {
		t.Fatalf("%v, %v", entries, err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("run directory: %v, %v", info.Mode(), err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", e.Name(), info.Mode(), err)
		}
	}
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", h.Sup.List()[0].OSPID))
	if err != nil {
		t.Fatal(err)
	}
	var token string
	err = h.Store.Query(t.Context(), `select token from kernel`, nil, func(scan func(...any) error) error { return scan(&token) })
	if err != nil || len(token) != 64 || strings.Contains(string(cmdline), token) {
		t.Errorf("the command line %q holds the token %q (%v)", cmdline, token, err)
	}
}

// P-082: a live process on whose socket nobody listens is given up after ten seconds, not after the tries of one that may answer.
func TestNobodyListens(t *testing.T) {
	t.Parallel()
	var dials atomic.Int32
	h := pykerneltest.New(t, func(o *supervise.Options) {
		o.Dial = func(ctx context.Context, socket string) (net.Conn, error) {
			dials.Add(1)
			return config.DialSocket(ctx, socket)
		}
	})
	kernel, cell := h.Open("a", "1")
	h.Outcome(cell)
	pid := h.Sup.List()[0].OSPID
	h.Stop()
	if err := os.Remove(filepath.Join(h.Dir, "run", kernel, "kernel.sock")); err != nil {
		t.Fatal(err)
	}
	dials.Store(0)
	h.Start()
	if g := h.Gone(kernel); !strings.Contains(g.Reason, "could not be reached") || alive(pid) {
		t.Errorf("gone %+v, alive %v", g, alive(pid))
	}
	if n := dials.Load(); n != 10 {
		t.Errorf("%d tries", n)
	}
}

// Unpacked sources go at a start when neither this program nor a live kernel uses them.
func TestOldBundlesAreSwept(t *testing.T) {
	h := pykerneltest.New(t, nil)
	kernel, cell := h.Open("a", "1")
	h.Outcome(cell)
	var digest string
	if err := h.Store.Query(t.Context(), `select bundle from kernel where id = ?`, []any{kernel},
		func(scan func(...any) error) error { return scan(&digest) }); err != nil {
		t.Fatal(err)
	}
	bundles := filepath.Join(h.Dir, "kernel-bundles")
	used, old := strings.Repeat("ab", 32), strings.Repeat("cd", 32)
	for _, name := range []string{used, old, ".new-left", "person's"} {
		if err := os.MkdirAll(filepath.Join(bundles, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = leave(t, h, "b", "1", set{state: "booting"})
	names := func() string {
		entries, err := os.ReadDir(bundles)
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, e := range entries {
			all = append(all, e.Name())
		}
		slices.Sort(all)
		return strings.Join(all, " ")
	}
	before := names()
	h.Restart() // one boots
	if got := names(); got != before {
		t.Errorf("while a kernel boots %s, before %s", got, before)
	}
	h.Until("both run", func() bool { return h.Count(`select count(*) from kernel where state = 'running'`) == 2 })
	if err := h.Commit("b", func() []neuron.Op { return []neuron.Op{bundled{kernel, used}} }); err != nil {
		t.Fatal(err)
	}
	h.Restart()
	want := []string{used, digest, "lock", "person's"}
	slices.Sort(want)
	if got := names(); got != strings.Join(want, " ") {
		t.Errorf("left %s, want %s", got, want)
	}
}

// bundled says in a kernel's row that its process runs from other sources.
type bundled struct{ kernel, digest string }

func (bundled) SQL() string { return `update kernel set bundle = ? where id = ?` }

func (b bundled) Args() []any { return []any{b.digest, b.kernel} }

// A run directory that no row names is removed at the start.
func TestStraysAreSwept(t *testing.T) {
	h := pykerneltest.New(t, nil)
	stray := filepath.Join(h.Dir, "run", "stray")
	if err := os.MkdirAll(stray, 0o700); err != nil {
		t.Fatal(err)
	}
	h.Restart()
	if _, err := os.Stat(stray); !os.IsNotExist(err) {
		t.Errorf("the stray is still there: %v", err)
	}
}
