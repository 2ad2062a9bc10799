package faults

import (
	"os"
	"strings"
	"testing"
)

// runs reports whether an OS process runs that has the id, or is in its group. One that waits to be reaped does not run.
func runs(t *testing.T, id string) bool {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text, _ := os.ReadFile("/proc/" + e.Name() + "/stat") // what cannot be read any more is gone
		_, rest, _ := strings.Cut(string(text), ") ")
		if f := strings.Fields(rest); len(f) > 2 && f[0] != "Z" && (e.Name() == id || f[2] == id) {
			return true
		}
	}
	return false
}

// A job that ignores TERM is killed, with all that it has started, before the stop is answered.
func TestJobIgnoresTERM(t *testing.T) { // P-052
	y := newPlace(t).python()
	y.ok(`j = run("trap '' TERM; sh -c \"trap '' TERM; echo on; while :; do sleep 0.1; done\" & wait")
while not j.head(lines=1): await j.wait(0.1)`)
	group := y.ok("j.pid")
	if !runs(t, group) {
		t.Fatal("the job does not run")
	}
	y.run("job", "stop", y.session.ID, "j1").ends(0)
	if runs(t, group) {
		t.Error("something of the job runs on")
	}
	if v := y.ok("(j.exit_code, j.read())"); v != `(-9, 'on\n')` {
		t.Errorf("the job is %s", v)
	}
	y.lives()
}

// A job ends with its own process, also when a child of it keeps the pipe; what was written until then is its output, and the
// child ends with the kernel.
func TestJobLeavesAChild(t *testing.T) { // P-208
	y := newPlace(t).python()
	if v := y.ok("import time; began = time.monotonic(); j = run('sleep 600 & echo $!; exit 3'); await j; (j.exit_code, time.monotonic() - began < 30)"); v != "(3, True)" {
		t.Fatal(v)
	}
	child := y.ok("int(j.read())")
	if !runs(t, child) {
		t.Error("the child was ended with its parent")
	}
	y.lives()
	y.run("stop", "--kernels").ends(0)
	y.until("the end of the child", func() bool { return !runs(t, child) })
}
