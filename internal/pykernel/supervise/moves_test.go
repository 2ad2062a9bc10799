package supervise_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"soma/internal/neuron"
	"soma/internal/pykernel"
	"soma/internal/pykernel/pykerneltest"
	"soma/internal/pykernel/supervise"
)

// as makes a home's supervisors those of one node among several.
func as(h *pykerneltest.Home, node string) {
	h.Change = func(o *supervise.Options) {
		probed(o)
		o.Node, o.Shared, o.RunDir = node, true, filepath.Join(h.Dir, "run-"+node)
	}
}

// gain gives all places to the supervisor that runs.
func gain(t *testing.T, h *pykerneltest.Home) {
	t.Helper()
	if err := h.Sup.Gain(t.Context(), neuron.AllPlaces()); err != nil {
		t.Fatal(err)
	}
}

// M-12: the python kernels of places that came from another node are lost: an open cell that was given to one has an unknown
// result, one that was not is not started, and the owner hears that they are gone. Their processes are left to their own node,
// which ends them, with what they started and their directories, once it lives again.
func TestKernelsOfAnotherNode(t *testing.T) {
	h := pykerneltest.New(t, func(o *supervise.Options) {})
	h.Stop()
	as(h, "old")
	h.Start()
	gain(t, h)
	insert := func(owner, code string) (kernel, cell string) {
		k := h.Insert(owner)
		k.Node = "old"
		if err := h.Commit(owner, func() []neuron.Op {
			f, c := h.Execute(k.ID, code, time.Minute)
			cell = c
			return []neuron.Op{k, f}
		}); err != nil {
			t.Fatal(err)
		}
		return k.ID, cell
	}
	kernel, cell := insert("a", "import soma_guard; door = soma_guard.spawning(); door.__enter__()\nimport subprocess, time\nopen('child', 'w').write(str(subprocess.Popen(['sleep', '600'], start_new_session=True).pid))\nj = probe.start('j1', 'env', '-i', 'sleep', '600')\nprint('runs', flush=True)\nwhile True: time.sleep(0.05)")
	h.Shown(cell, "runs")
	job := live(h, kernel, 1).Jobs[0].PID
	h.Until("the row of the job", func() bool { return h.Count(`select count(*) from job where state = 'running'`) == 1 })
	pid := h.Sup.List()[0].OSPID
	h.Stop()
	unborn := h.Insert("b")
	unborn.Node = "old"

	as(h, "new")
	h.Start()
	var idle string
	if err := h.Commit("b", func() []neuron.Op { // as its last commit would have left it
		f, c := h.Execute(unborn.ID, "1", time.Minute)
		idle = c
		return []neuron.Op{unborn, f}
	}); err != nil {
		t.Fatal(err)
	}
	gain(t, h)
	if m := h.Outcome(cell); m.Status != pykernel.CellUnknown || !strings.Contains(m.Note, "old") {
		t.Errorf("the cell that ran: %+v", m)
	}
	if m := h.Outcome(idle); m.Status != pykernel.CellNotStarted {
		t.Errorf("the cell that did not: %+v", m)
	}
	h.Gone(kernel)
	h.Gone(unborn.ID)
	if n := h.Count(`select count(*) from kernel where state <> 'ended'`) + h.Count(`select count(*) from kernel_frame`); n != 0 {
		t.Errorf("%d rows are left", n)
	}
	h.Until("they are let go", func() bool { return len(h.Sup.List()) == 0 })
	if !alive(pid) || !alive(job) {
		t.Error("the process or its job was ended by a node that it is not of")
	}
	if n := h.Count(`select count(*) from job where state = 'lost'`); n != 1 {
		t.Error("the job is not lost")
	}
	if h.Outcomes(cell) != 1 {
		t.Errorf("%d outcomes", h.Outcomes(cell))
	}
	h.Stop()

	as(h, "old")
	h.Start()
	child, err := os.ReadFile(filepath.Join(h.Workspace, "child"))
	if err != nil {
		t.Fatal(err)
	}
	h.Until("the lost process ends", func() bool { return !alive(pid) })
	h.Until("its job ends", func() bool { return !alive(job) })
	h.Until("so does what it started", func() bool {
		_, err := os.Stat(filepath.Join("/proc", string(child)))
		return os.IsNotExist(err)
	})
	h.Until("its directory goes", func() bool {
		_, err := os.Stat(filepath.Join(h.Dir, "run-old", kernel))
		return os.IsNotExist(err)
	})
}

// M-12: a place with a live python kernel is busy. One that is let go all the same lives on, and the same node finds it again
// with its names.
func TestReleasedAndGainedAgain(t *testing.T) {
	h := pykerneltest.New(t, func(o *supervise.Options) { o.Shared = true })
	gain(t, h)
	place := neuron.PlaceOf("s-a")
	if h.Sup.Busy(place) {
		t.Error("busy without a kernel")
	}
	kernel, cell := h.Open("a", "x = 7")
	h.Outcome(cell)
	if !h.Sup.Busy(place) || h.Sup.Busy(place+1) {
		t.Error("the place of the kernel is not the busy one")
	}
	pid := h.Sup.List()[0].OSPID
	h.Sup.Release(neuron.PlacesOf(place))
	h.Until("it is let go", func() bool { return len(h.Sup.List()) == 0 })
	if !alive(pid) {
		t.Fatal("the process has ended")
	}
	gain(t, h)
	value(t, h.Outcome(h.Run("a", kernel, "x", time.Minute)), "7")
	if got := h.Sup.List()[0].OSPID; got != pid {
		t.Errorf("pid %d, before %d", got, pid)
	}
}
