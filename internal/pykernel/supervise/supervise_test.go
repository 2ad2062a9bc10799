package supervise_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"

	"soma/internal/neuron"
	"soma/internal/pykernel"
	"soma/internal/pykernel/pykerneltest"
	"soma/internal/pykernel/supervise"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func value(t *testing.T, m pykernel.CellEnded, want string) {
	t.Helper()
	if m.Status != pykernel.CellOK || m.Value == nil || *m.Value != want {
		t.Errorf("outcome %+v, want the value %s", m, want)
	}
}

func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(b), ") Z ")
}

// P-001, P-122, P-213: a kernel with names outlives its daemon, in a session of its own, and is found again.
func TestKernelOutlivesTheDaemon(t *testing.T) {
	h := pykerneltest.New(t, nil)
	kernel, cell := h.Open("a", "x = 20\nx + 1")
	value(t, h.Outcome(cell), "21")
	before := h.Sup.List()[0]
	if before.State != "attached" || before.OSPID == 0 || before.Session != "s-a" {
		t.Errorf("status %+v", before)
	}
	if n := h.Count(`select count(*) from kernel where state = 'running' and os_pid = ? and pgid = os_pid and epoch = 1`, before.OSPID); n != 1 {
		t.Error("the row does not say that the kernel runs")
	}
	h.Stop()
	if !alive(before.OSPID) {
		t.Fatal("the kernel ended with its daemon")
	}
	h.Start()
	h.Attached(kernel) // without a frame that would wake it
	value(t, h.Outcome(h.Run("a", kernel, "x + 2", time.Minute)), "22")
	if after := h.Sup.List()[0]; after.OSPID != before.OSPID {
		t.Errorf("pid %d, then %d", before.OSPID, after.OSPID)
	}
}

// P-016, P-122: what has done its work leaves the tables with a later commit.
func TestRowsGo(t *testing.T) {
	h := pykerneltest.New(t, nil)
	kernel, cell := h.Open("a", "0")
	h.Outcome(cell)
	for i := range 5 {
		value(t, h.Outcome(h.Run("a", kernel, fmt.Sprint(i), time.Minute)), fmt.Sprint(i))
	}
	if n := h.Count(`select count(*) from kernel_frame`); n != 0 {
		t.Errorf("%d frames are left", n)
	}
	if n := h.Count(`select count(*) from kernel_inbox`); n > 3 {
		t.Errorf("%d inbox items are left", n)
	}
	ctx, cancel := context.WithTimeout(t.Context(), pykerneltest.Patience)
	defer cancel()
	if err := h.Sup.EndAll(ctx); err != nil {
		t.Fatal(err)
	}
	h.Gone(kernel)
	if n := h.Count(`select count(*) from kernel_inbox`); n != 0 {
		t.Errorf("%d inbox items of an ended kernel are left", n)
	}
	if n := h.Count(`select count(*) from kernel where state = 'ended' and ended_at is not null`); n != 1 {
		t.Error("the row does not say that the kernel has ended")
	}
	if entries, err := os.ReadDir(filepath.Join(h.Dir, "run")); err != nil || len(entries) != 0 {
		t.Errorf("run directories: %v, %v", entries, err)
	}
}

// P-021: a cell that had begun when its kernel died is unknown, one that never came to it is not started, and both are said
// before the kernel's end.
func TestKernelDies(t *testing.T) {
	h := pykerneltest.New(t, nil)
	kernel, cell := h.Open("a", "import os; os._exit(7)")
	m := h.Outcome(cell)
	if m.Status != pykernel.CellUnknown || !strings.Contains(m.Note, "result unknown: the python kernel ended") || !strings.Contains(m.Note, "status 7") {
		t.Errorf("outcome %+v", m)
	}
	if g := h.Gone(kernel); !strings.Contains(g.Reason, "status 7") {
		t.Errorf("gone %+v", g)
	}
	err := h.Commit("a", func() []neuron.Op {
		f, _ := h.Execute(kernel, "1", time.Minute)
		return []neuron.Op{f}
	})
	if !errors.Is(err, pykernel.ErrKernelEnded) {
		t.Errorf("a frame for a kernel that has ended: %v", err)
	}
}

// P-107, P-021: a python that does not start says why, and its cells are not started.
func TestStartupFails(t *testing.T) {
	broken := t.TempDir()
	source := "import sys\nsys.stderr.write('the first line\\n' + 'x' * 10000 + 'é' * 900 + '\\n')\nimport nothing_of_that_name\n"
	if err := os.WriteFile(filepath.Join(broken, "soma_kernel.py"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	h := pykerneltest.New(t, func(o *supervise.Options) { o.SourceDir = broken })
	kernel, cell := h.Open("a", "1")
	m := h.Outcome(cell)
	if m.Status != pykernel.CellNotStarted || !strings.Contains(m.Note, "python exited at startup: ") || !strings.Contains(m.Note, "nothing_of_that_name") {
		t.Errorf("outcome %+v", m)
	}
	if _, tail, _ := strings.Cut(m.Note, "at startup: "); len(tail) < 1900 || len(tail) > 2000 || !utf8.ValidString(tail) {
		t.Errorf("%d bytes of the log: %q", len(tail), tail)
	}
	h.Gone(kernel)

	k := h.Insert("b")
	k.Python = filepath.Join(broken, "no-python")
	if err := h.Commit("b", func() []neuron.Op {
		row := *k
		f, c := h.Execute(k.ID, "1", time.Minute)
		cell = c
		return []neuron.Op{&row, f}
	}); err != nil {
		t.Fatal(err)
	}
	if m := h.Outcome(cell); m.Status != pykernel.CellNotStarted || !strings.Contains(m.Note, "no such file") {
		t.Errorf("outcome without python %+v", m)
	}
}

// P-123, P-210, P-213: an outcome that came while nobody listened is committed once; a handler that fails holds up neither the
// acknowledgement nor the next cell.
func TestOutcomesAreCommittedOnce(t *testing.T) {
	h := pykerneltest.New(t, nil)
	kernel, cell := h.Open("a", "import pathlib; 1")
	h.Outcome(cell)
	file := filepath.Join(h.Workspace, "runs")
	var cells []string
	for i := range 4 {
		code := fmt.Sprintf("import time; time.sleep(0.05)\nwith open(%q, 'a') as f: f.write('%d\\n')", file, i)
		cells = append(cells, h.Run("a", kernel, code, time.Minute))
	}
	h.Restart()
	h.Restart()
	for _, c := range cells {
		if m := h.Outcome(c); m.Status != pykernel.CellOK {
			t.Errorf("outcome %+v", m)
		}
	}
	if b, _ := os.ReadFile(file); string(b) != "0\n1\n2\n3\n" {
		t.Errorf("cells ran as %q", b)
	}
	for _, c := range cells {
		if n := h.Outcomes(c); n != 1 {
			t.Errorf("%d outcomes of one cell", n)
		}
	}

	var fails sync.Map
	h.Hold = func(m pykernel.CellEnded) error {
		if n, _ := fails.LoadOrStore(m.Cell, new(int)); *n.(*int) < 3 {
			*n.(*int)++
			return errors.New("not now")
		}
		return nil
	}
	one := h.Run("a", kernel, "1", time.Minute)
	two := h.Run("a", kernel, "2", time.Minute)
	value(t, h.Outcome(one), "1")
	value(t, h.Outcome(two), "2")
}

// gate keeps outcomes from being committed while it is shut.
type gate struct {
	supervise.Neurons
	shut  atomic.Bool
	tried atomic.Int32
}

func (g *gate) Accept(ctx context.Context, d neuron.Delivery, ops ...neuron.Op) error {
	if g.shut.Load() {
		g.tried.Add(1)
		return errors.New("shut")
	}
	return g.Neurons.Accept(ctx, d, ops...)
}

// P-213: an outcome that cannot be committed is not acknowledged: the python kernel keeps it for the next daemon.
func TestNothingIsAcknowledgedBeforeItsCommit(t *testing.T) {
	t.Parallel()
	var g gate
	h := pykerneltest.New(t, func(o *supervise.Options) { g.Neurons, o.Neurons = o.Neurons, &g })
	kernel, cell := h.Open("a", "1")
	h.Outcome(cell)
	g.shut.Store(true)
	cell = h.Run("a", kernel, "print('kept')\n2", time.Minute)
	h.Until("tries", func() bool { return g.tried.Load() >= 5 }) // 300 ms: an acknowledgement would be written by now
	h.Stop()
	g.shut.Store(false)
	h.Start()
	m := h.Outcome(cell)
	value(t, m, "2")
	if m.Output.Head != "kept\n" {
		t.Errorf("output %+v", m.Output)
	}
}

// Large output: the outcome holds its beginning and its end, the content row all that the python kernel kept.
func TestLargeOutput(t *testing.T) {
	h := pykerneltest.New(t, nil)
	_, cell := h.Open("a", "print('é' * 1_500_000, end='')\nprint('the end')")
	m := h.Outcome(cell)
	const size = 3_000_000 + 8
	if m.Status != pykernel.CellOK || m.Output.Size != size || m.Kept != pykernel.MaxHead {
		t.Errorf("outcome %v, size %d, kept %d", m.Status, m.Output.Size, m.Kept)
	}
	if n := len(m.Output.Head) + len(m.Output.Tail); n > pykernel.PreviewBytes || n < pykernel.PreviewBytes-8 {
		t.Errorf("a preview of %d bytes", n)
	}
	if !utf8.ValidString(m.Output.Head) || !utf8.ValidString(m.Output.Tail) || !strings.HasSuffix(m.Output.Tail, "the end\n") {
		t.Errorf("the preview ends with %q", m.Output.Tail[max(0, len(m.Output.Tail)-20):])
	}
	content := h.Content(m.Content)
	if len(content) > pykernel.MaxHead+pykernel.MaxTail || len(content) < pykernel.MaxHead+pykernel.MaxTail-8 || !strings.HasSuffix(string(content), "the end\n") {
		t.Errorf("content of %d bytes", len(content))
	}
}

// P-202: an interrupt ends a cell that awaits, one that computes, and one that holds the interpreter lock, where the frame
// is not read and the daemon sends the signal itself; names stay.
func TestInterrupts(t *testing.T) {
	h := pykerneltest.New(t, nil)
	kernel, cell := h.Open("a", "kept = 5")
	h.Outcome(cell)
	for name, code := range map[string]string{
		"await":    "import asyncio; print('on', flush=True); await asyncio.sleep(60)",
		"loop":     "print('on', flush=True)\nwhile True: pass",
		"gil held": "import re; print('on', flush=True); re.match('(a+)+$', 'a' * 40 + 'b')",
	} {
		cell := h.Run("a", kernel, code, time.Minute)
		h.Shown(cell, "on")
		began := time.Now()
		h.Interrupt("a", kernel, cell)
		m := h.Outcome(cell)
		if m.Status != pykernel.CellInterrupted {
			t.Errorf("%s: outcome %+v", name, m)
		}
		t.Logf("%s: %v", name, time.Since(began))
	}
	value(t, h.Outcome(h.Run("a", kernel, "kept", time.Minute)), "5")
}

// stubborn ignores every interrupt. The inner loop is a function of its own: an exception that is raised at a jump may miss
// the handler of its own frame.
const stubborn = "def spin():\n  while True: pass\nwhile True:\n  try: spin()\n  except BaseException: pass"

// P-127: the python kernel ends a cell at its deadline; where it cannot the daemon interrupts by signal, and where the cell
// does not stop at all its kernel is ended.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	h := pykerneltest.New(t, nil)
	kernel, cell := h.Open("a", "kept = 5")
	h.Outcome(cell)
	m := h.Outcome(h.Run("a", kernel, "while True: pass", 200*time.Millisecond))
	if m.Status != pykernel.CellTimedOut {
		t.Errorf("a loop: %+v", m)
	}
	m = h.Outcome(h.Run("a", kernel, "import re; re.match('(a+)+$', 'a' * 40 + 'b')", 200*time.Millisecond))
	if m.Status != pykernel.CellTimedOut {
		t.Errorf("a held lock: %+v", m)
	}
	value(t, h.Outcome(h.Run("a", kernel, "kept", time.Minute)), "5")
	m = h.Outcome(h.Run("a", kernel, stubborn, 200*time.Millisecond))
	if m.Status != pykernel.CellTimedOut || m.Note == "" {
		t.Errorf("a cell that ignores its interrupt: %+v %+v", m, m.Error)
	}
	if g := h.Gone(kernel); !strings.Contains(g.Reason, "deadline") {
		t.Errorf("gone %+v", g)
	}
}

// P-202, P-127: a cell that swallows its interrupt gets more, by signal; one that goes on for 10 s loses its python kernel, and
// what waits behind it is answered.
func TestInterruptsThatAreSwallowed(t *testing.T) {
	t.Parallel()
	h := pykerneltest.New(t, nil)
	kernel, cell := h.Open("a", "kept = 5")
	h.Outcome(cell)
	once := "def spin():\n  while True: pass\nprint('on', flush=True)\ntry: spin()\nexcept BaseException: pass\nspin()"
	cell = h.Run("a", kernel, once, time.Hour)
	h.Shown(cell, "on")
	h.Interrupt("a", kernel, cell)
	if m := h.Outcome(cell); m.Status != pykernel.CellInterrupted || m.Note != "" {
		t.Errorf("swallowed once: %+v", m)
	}
	value(t, h.Outcome(h.Run("a", kernel, "kept", time.Minute)), "5")

	cell = h.Run("a", kernel, "print('on', flush=True)\n"+stubborn, time.Hour)
	h.Shown(cell, "on")
	behind := h.Run("a", kernel, "1", time.Hour)
	h.Interrupt("a", kernel, cell)
	if m := h.Outcome(cell); m.Status != pykernel.CellInterrupted || !strings.Contains(m.Note, "did not stop when it was interrupted") {
		t.Errorf("swallowed always: %+v", m)
	}
	if m := h.Outcome(behind); m.Status != pykernel.CellUnknown && m.Status != pykernel.CellNotStarted {
		t.Errorf("the cell behind it: %+v", m)
	}
	if g := h.Gone(kernel); !strings.Contains(g.Reason, "within 10s of its interrupt") {
		t.Errorf("gone %+v", g)
	}
}

// P-090: processes that have left the group of their python kernel end with it, also those that ignore SIGTERM.
func TestStrayProcessesEnd(t *testing.T) {
	h := pykerneltest.New(t, nil)
	code := `import os, subprocess
import soma_guard; door = soma_guard.spawning(); door.__enter__()
p = subprocess.Popen(["sleep", "600"], start_new_session=True)
q = subprocess.Popen(["sh", "-c", "trap '' TERM; setsid sleep 600 & echo $!; wait"], start_new_session=True, stdout=subprocess.PIPE)
r = int(q.stdout.readline())
[p.pid, q.pid, r, os.environ["SOMA_KERNEL"]]`
	kernel, cell := h.Open("a", code)
	m := h.Outcome(cell)
	if m.Value == nil {
		t.Fatalf("outcome %+v", m)
	}
	var pids [3]int
	var name string
	fields := strings.NewReplacer("[", "", "]", "", ",", "", "'", "").Replace(*m.Value)
	if _, err := fmt.Sscan(fields, &pids[0], &pids[1], &pids[2], &name); err != nil || name != kernel {
		t.Fatalf("%q, %v", *m.Value, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), pykerneltest.Patience)
	defer cancel()
	if err := h.Sup.EndAll(ctx); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("pid %d is left", pid)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// A boot finds its sources again after somebody has removed the cache under the running daemon.
func TestBundleIsRemoved(t *testing.T) {
	h := pykerneltest.New(t, nil)
	if err := os.RemoveAll(filepath.Join(h.Dir, "kernel-bundles")); err != nil {
		t.Fatal(err)
	}
	_, cell := h.Open("a", "1 + 1")
	value(t, h.Outcome(cell), "2")
}

// P-090: ending all python kernels ends their children too, tells the owners, and leaves no process.
func TestEndAll(t *testing.T) {
	h := pykerneltest.New(t, nil)
	child := filepath.Join(h.Workspace, "child")
	kernel, cell := h.Open("a", fmt.Sprintf("import soma_guard; door = soma_guard.spawning(); door.__enter__()\nimport subprocess; p = subprocess.Popen(['sleep', '600']); open(%q, 'w').write(str(p.pid)); print('on', flush=True)\n"+stubborn, child))
	h.Shown(cell, "on")
	pid := h.Sup.List()[0].OSPID
	ctx, cancel := context.WithTimeout(t.Context(), pykerneltest.Patience)
	defer cancel()
	if err := h.Sup.EndAll(ctx); err != nil {
		t.Fatal(err)
	}
	if m := h.Outcome(cell); m.Status != pykernel.CellUnknown {
		t.Errorf("outcome %+v", m)
	}
	h.Gone(kernel)
	text, err := os.ReadFile(child)
	if err != nil {
		t.Fatal(err)
	}
	var childPID int
	fmt.Sscan(string(text), &childPID)
	if alive(pid) || alive(childPID) {
		t.Errorf("left: kernel %v, child %v", alive(pid), alive(childPID))
	}
	if len(h.Sup.List()) != 0 {
		t.Errorf("list %v", h.Sup.List())
	}
}

// A boot beyond the bound ends the longest-idle kernel; where none is idle the cell waits under its deadline.
func TestMaxLive(t *testing.T) {
	t.Parallel()
	h := pykerneltest.New(t, func(o *supervise.Options) { o.MaxLive = 2 })
	first, cell := h.Open("a", "1")
	h.Outcome(cell)
	second, cell := h.Open("b", "2")
	h.Outcome(cell)
	slow := h.Run("b", second, "import asyncio; await asyncio.sleep(600)", time.Minute)
	h.Interrupt("b", second, slow)
	h.Outcome(slow)
	value(t, h.Outcome(h.Run("a", first, "3", time.Minute)), "3") // now b is the longest idle, an interrupt frame still in its rows
	third, cell := h.Open("c", "print('on', flush=True)\nimport asyncio\nawait asyncio.sleep(600)")
	h.Shown(cell, "on")
	if g := h.Gone(second); !strings.Contains(g.Reason, "longest idle of 2") {
		t.Errorf("gone %+v", g)
	}
	busy := h.Run("a", first, "print('on', flush=True)\nimport asyncio\nawait asyncio.sleep(600)", time.Minute)
	h.Shown(busy, "on")

	k := h.Insert("d")
	var late string
	if err := h.Commit("d", func() []neuron.Op {
		row := *k
		f, c := h.Execute(k.ID, "1", 300*time.Millisecond)
		late = c
		return []neuron.Op{&row, f}
	}); err != nil {
		t.Fatal(err)
	}
	if m := h.Outcome(late); m.Status != pykernel.CellNotStarted || !strings.Contains(m.Note, "2 python kernels are live") {
		t.Errorf("outcome %+v", m)
	}
	_, waits := h.Open("e", "5")
	h.Interrupt("c", third, cell)
	value(t, h.Outcome(waits), "5")
	h.Gone(third)
}

// A kernel for which a cell was committed just now is not ended to make room.
func TestEvictSparesOpenCells(t *testing.T) {
	h := pykerneltest.New(t, nil)
	kernel, cell := h.Open("a", "print('on', flush=True)\nimport asyncio\nawait asyncio.sleep(600)")
	h.Shown(cell, "on")
	evict := func() error {
		return h.Commit("a", func() []neuron.Op { return []neuron.Op{&pykernel.EvictKernel{ID: kernel, Reason: "room"}} })
	}
	if err := evict(); !errors.Is(err, pykernel.ErrKernelBusy) {
		t.Errorf("with an open cell: %v", err)
	}
	h.Interrupt("a", kernel, cell)
	h.Outcome(cell)
	h.Outcome(h.Run("a", kernel, "1", time.Minute)) // its commit takes the interrupt's frame along
	if err := evict(); err != nil {
		t.Errorf("without one: %v", err)
	}
	h.Gone(kernel)
}

// P-122: an outbox at its bound is an error to the caller. M-13: what waits there is no mail: it has no attempts, and nothing
// of it becomes a dead letter.
func TestOutboxIsBounded(t *testing.T) {
	t.Parallel()
	h := pykerneltest.New(t, nil)
	kernel, cell := h.Open("a", "1")
	h.Outcome(cell)
	pid := h.Sup.List()[0].OSPID
	err := syscall.Kill(pid, syscall.SIGSTOP) // it acknowledges nothing any more
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(pid, syscall.SIGCONT)
	for range 40 {
		if err = h.Sup.Room(kernel); err != nil {
			break
		}
		if err := h.Commit("a", func() []neuron.Op {
			var ops []neuron.Op
			for range 64 {
				f, e := pykernel.NewFrame(kernel, "", pykernel.Interrupt{Type: pykernel.FrameInterrupt, Cell: "none"}, time.Now())
				if e != nil {
					t.Fatal(e)
				}
				ops = append(ops, f)
			}
			return ops
		}); err != nil {
			t.Fatal(err)
		}
	}
	if !errors.Is(err, supervise.ErrOutboxFull) {
		t.Errorf("2,560 frames wait: %v", err)
	}
	frames := h.Count(`select count(*) from kernel_frame`)
	if frames < 2048 || h.Count(`select count(*) from outbox`) != 0 || h.Count(`select count(*) from dead_letter`) != 0 {
		t.Errorf("%d frames wait, some as mail", frames)
	}
	if h.Sup.Room("unknown") != nil {
		t.Error("an unknown kernel has no room")
	}
}
