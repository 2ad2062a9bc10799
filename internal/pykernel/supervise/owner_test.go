package supervise_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"soma/internal/pykernel/bundle"
	"soma/internal/pykernel/pykerneltest"
)

// children lists the OS processes whose parent is pid, without zombies.
func children(t *testing.T, pid int) (all []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		child, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "stat")) // of one that has gone nothing can be read
		_, rest, _ := strings.Cut(string(text), ") ")
		if f := strings.Fields(rest); len(f) > 1 && f[0] != "Z" && f[1] == strconv.Itoa(pid) {
			all = append(all, child)
		}
	}
	return all
}

// P-005: python is a child of the daemon itself and the only process of its kernel, attached, recovered and idle; the digest
// of its sources is the daemon's own.
func TestNoHelperProcess(t *testing.T) {
	h := pykerneltest.New(t, nil)
	before := children(t, os.Getpid())
	kernel, cell := h.Open("a", "1")
	h.Outcome(cell)
	pid := h.Sup.List()[0].OSPID
	alone := func(when string) {
		t.Helper()
		now := slices.DeleteFunc(children(t, os.Getpid()), func(p int) bool { return slices.Contains(before, p) })
		if !slices.Equal(now, []int{pid}) || len(children(t, pid)) != 0 {
			t.Errorf("%s: the daemon's processes are %v, python is %d and has %v", when, now, pid, children(t, pid))
		}
	}
	alone("after the boot")
	h.Restart()
	value(t, h.Outcome(h.Run("a", kernel, "2", time.Minute)), "2")
	alone("after a restart")

	tree, err := bundle.UnpackTree("../python", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || !strings.HasSuffix(string(command), "--bundle\x00"+tree.Digest+"\x00") {
		t.Errorf("%q, %v; the sources here have the digest %s", command, err, tree.Digest)
	}
}

// P-008: the ladder goes to the group that the kernel declared: SIGTERM first, and SIGKILL for what ignores it, the kernel's
// children and a stopped process among them; a process of the same parent that is not of the group, nor carries the kernel's
// mark, is spared.
func TestSignalLadder(t *testing.T) {
	t.Parallel()
	h := pykerneltest.New(t, nil)
	file := func(name string) string { return filepath.Join(h.Workspace, name) }
	shell := func(name, code string) string {
		return fmt.Sprintf("subprocess.Popen(['sh', '-c', %q], start_new_session=%s)\n", "echo $$ > "+file(name)+"; "+code,
			map[bool]string{true: "True", false: "False"}[name == "apart"])
	}
	kernel, cell := h.Open("a", "import subprocess, os\nimport soma_guard; door = soma_guard.spawning(); door.__enter__()\n"+
		shell("polite", "trap 'echo x > "+file("said")+"; exit' TERM; while :; do sleep 0.1; done")+
		shell("deaf", "trap '' TERM; while :; do sleep 0.1; done")+
		shell("stopped", "kill -STOP $$")+
		shell("apart", "exec env -i sleep 600")+
		"while not all(os.path.exists(f) and os.path.getsize(f) for f in ('polite', 'deaf', 'stopped', 'apart')): pass")
	h.Outcome(cell)
	pids := map[string]int{}
	for _, name := range []string{"polite", "deaf", "stopped", "apart"} {
		text, err := os.ReadFile(file(name))
		if err != nil {
			t.Fatal(err)
		}
		if pids[name], err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
			t.Fatal(err)
		}
	}
	defer syscall.Kill(pids["apart"], syscall.SIGKILL)
	pid := h.Sup.List()[0].OSPID
	if n := h.Count(`select count(*) from kernel where os_pid = ? and pgid = ? and leader <> ''`, pid, pid); n != 1 {
		t.Error("the row does not hold the declared process and group")
	}
	ctx, cancel := context.WithTimeout(t.Context(), pykerneltest.Patience)
	defer cancel()
	if err := h.Sup.EndAll(ctx); err != nil {
		t.Fatal(err)
	}
	h.Gone(kernel)
	for _, name := range []string{"polite", "deaf", "stopped"} {
		if alive(pids[name]) {
			t.Errorf("%s lives", name)
		}
	}
	if alive(pid) || !alive(pids["apart"]) {
		t.Errorf("kernel lives %v, the process of another group lives %v", alive(pid), alive(pids["apart"]))
	}
	if _, err := os.Stat(file("said")); err != nil {
		t.Errorf("SIGTERM did not come first: %v", err)
	}
}
