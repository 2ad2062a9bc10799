package supervise_test

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"soma/internal/neuron"
	"soma/internal/pykernel"
	"soma/internal/pykernel/bundle"
	"soma/internal/pykernel/pykerneltest"
	"soma/internal/pykernel/supervise"
)

//go:embed testdata/soma_probe.py
var probeSource []byte

// probed gives python kernels the binding `probe`.
func probed(o *supervise.Options) {
	o.Modules, o.Sources = []string{"soma_probe"}, []bundle.Module{{Name: "soma_probe", Source: probeSource}}
}

// pidIn waits for the pid that a job writes into a file of the workspace.
func pidIn(h *pykerneltest.Home, name string) (pid int) {
	h.Until("a pid in "+name, func() bool {
		b, err := os.ReadFile(filepath.Join(h.Workspace, name))
		pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		return err == nil && strings.HasSuffix(string(b), "\n") && pid > 0
	})
	return pid
}

// live waits until so many jobs are known to run, and returns what is known.
func live(h *pykerneltest.Home, kernel string, n int) (o pykernel.Observation) {
	h.Until(fmt.Sprintf("%d jobs run", n), func() bool {
		o, _ = h.Sup.Observe(kernel)
		return o.Live != nil && *o.Live == n
	})
	return o
}

// P-046, P-048, P-122, P-123: a job is known from its start, recorded with its group, and its end is told once.
func TestJobs(t *testing.T) {
	h := pykerneltest.New(t, probed)
	kernel, cell := h.Open("a", "p = probe.start('j1', 'sleep', '30', command='x' * 5000)")
	value := h.Outcome(cell)
	if value.Status != pykernel.CellOK {
		t.Fatalf("%+v", value)
	}
	o := live(h, kernel, 1)
	if j := o.Jobs[0]; o.Awaited != 1 || j.ID != "j1" || j.PID == 0 || len(j.Command) != pykernel.MaxCommand || j.StartedAt == 0 || j.Service {
		t.Errorf("observed %+v", o)
	}
	h.Until("the row of the job", func() bool {
		return h.Count(`select count(*) from job where kernel = ? and id = 'j1' and state = 'running' and pid = ? and pgid = pid and leader <> ''
and session = 's-a' and length(command) = 4096`, kernel, o.Jobs[0].PID) == 1
	})
	if n := h.Count(`select count(*) from kernel where id = ? and modules = 'soma_probe'`, kernel); n != 1 {
		t.Error("the modules are not recorded")
	}
	h.Outcome(h.Run("a", kernel, "probe.start('j0', 'sleep', '30', service=True)\nprobe.api.report_jobs('r', [{'id': 'i9', 'command': 'make', 'service': False, 'started': 0}])", time.Minute))
	o = live(h, kernel, 3)
	ids := []string{}
	for _, j := range o.Jobs {
		ids = append(ids, j.ID)
	}
	if !reflect.DeepEqual(ids, []string{"i9", "j0", "j1"}) || o.Awaited != 2 || o.Jobs[0].PID != 0 || o.Jobs[0].StartedAt != 0 {
		t.Errorf("observed %+v", o)
	}
	h.Outcome(h.Run("a", kernel, "p.terminate(); probe.end('j1', p)", time.Minute))
	m := h.JobEnded("j1")
	if len(m) != 1 || m[0].ExitCode == nil || *m[0].ExitCode != -15 || m[0].DurationMS <= 0 || m[0].Tail != "end" || m[0].Bytes != 3 || !m[0].Wake || m[0].Kernel != kernel {
		t.Errorf("told %+v", m)
	}
	live(h, kernel, 2)
	if n := h.Count(`select count(*) from job where id = 'j1' and state = 'exited' and exit_code = -15 and ended_at > started_at`); n != 1 {
		t.Error("the row of the ended job is not there")
	}
	// One whose result was read wakes nobody.
	h.Outcome(h.Run("a", kernel, "probe.end('j0', wake=False)\nprobe.api.report_jobs('r', [])", time.Minute))
	live(h, kernel, 0)
	h.Until("the end of the service", func() bool { return h.Count(`select count(*) from job where id = 'j0' and state = 'exited'`) == 1 })
	if m := h.JobEnded("j0"); len(m) != 1 || m[0].Wake {
		t.Errorf("told of a job that was read: %+v", m)
	}
}

// P-053, P-089: a job that is ended with its python kernel is told as that, once, and not as one that has finished.
func TestJobsEndWithTheirKernel(t *testing.T) {
	h := pykerneltest.New(t, probed)
	kernel, cell := h.Open("a", `import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN) # it sees its jobs end before it does
tasks = []
for job in ('j1', 'j2'):
    probe.watch(job, probe.start(job, 'sleep', '60'))
    tasks.append(probe.task)
probe.start('j3', 'true')
probe.end('j3')`)
	h.Outcome(cell)
	live(h, kernel, 2)
	if left, err := h.Sup.Restart(t.Context(), kernel); err != nil || len(left.Jobs) != 2 {
		t.Fatalf("%+v, %v", left, err)
	}
	if g := h.Gone(kernel); len(g.Jobs) != 2 || g.Jobs[0].ID != "j1" || g.Jobs[1].ID != "j2" {
		t.Errorf("%+v", g)
	}
	if h.JobsEnded("j1") != 0 || h.JobsEnded("j2") != 0 || len(h.JobEnded("j3")) != 1 {
		t.Error("told as finished")
	}
	if n := h.Count(`select count(*) from job where id in ('j1', 'j2') and state = 'lost' or id = 'j3' and state = 'exited'`); n != 3 {
		t.Errorf("%d rows are right", n)
	}
}

// P-048: who watches is called when a fact has changed, and for nothing else; a python kernel that is gone has no facts.
func TestWatch(t *testing.T) {
	h := pykerneltest.New(t, probed)
	kernel, cell := h.Open("a", "1")
	h.Outcome(cell)
	before := live(h, kernel, 0)
	h.Until("eligible is told", func() bool { before, _ = h.Sup.Observe(kernel); return before.Eligible })
	var calls atomic.Int64
	changes := make(chan pykernel.Observation, 100)
	stop := h.Sup.Watch(kernel, func() {
		calls.Add(1)
		o, _ := h.Sup.Observe(kernel)
		changes <- o
	})
	for range 10 {
		h.Sup.Publish(kernel)
	}
	if n := calls.Load(); n != 0 {
		t.Errorf("called %d times for nothing", n)
	}
	h.Outcome(h.Run("a", kernel, "probe.start('j1', 'true')", time.Minute))
	for last := before; last.Live == nil || *last.Live != 1 || len(last.Cells) != 0; {
		last = <-changes // the last change is always told
	}
	stop()
	stop()
	n := calls.Load()
	h.Outcome(h.Run("a", kernel, "probe.end('j1', wake=False)", time.Minute))
	live(h, kernel, 0)
	if calls.Load() != n {
		t.Error("called after stop")
	}
	gone := make(chan struct{}, 100)
	h.Sup.Watch(kernel, func() {
		if _, ok := h.Sup.Observe(kernel); !ok {
			gone <- struct{}{}
		}
	})
	if _, err := h.Sup.Restart(t.Context(), kernel); err != nil {
		t.Fatal(err)
	}
	<-gone
	h.Sup.Watch(kernel, func() { t.Error("called for a python kernel that is not there") })()
}

// P-048: readers look at what was heard last and ask nobody, also while the owner waits for a commit.
func TestObservingAsksNobody(t *testing.T) {
	h := pykerneltest.New(t, probed)
	kernel, cell := h.Open("a", "p = probe.start('j1', 'sleep', '30')")
	h.Outcome(cell)
	live(h, kernel, 1)
	pid := h.Sup.List()[0].OSPID
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Kill(pid, unix.SIGCONT) }()
	for range 1000 {
		if o, ok := h.Sup.Observe(kernel); !ok || *o.Live != 1 {
			t.Fatalf("%+v, %v", o, ok)
		}
	}
}

// P-122: the rows of ended jobs are bounded, those of running ones stay.
func TestJobsAreBounded(t *testing.T) {
	h := pykerneltest.New(t, probed)
	kernel, cell := h.Open("a", `p = probe.start('j', 'sleep', '60')
for i in range(300):
    probe.end(f'e{i}', wake=False, ended_at=1000 + i // 100)`)
	h.Outcome(cell)
	h.Until("the rows", func() bool { return h.Count(`select count(*) from job where id = 'e299'`) == 1 })
	if n := h.Count(`select count(*) from job where kernel = ? and state = 'exited'`, kernel); n != pykernel.KeptJobs {
		t.Errorf("%d rows of ended jobs", n)
	}
	if n := h.Count(`select count(*) from job where id in ('e0', 'e43') or id = 'j' and state = 'running'`); n != 1 {
		t.Errorf("%d rows", n)
	}
}

// What a python kernel tells of jobs is bounded: ids, and how many run.
func TestJobsThatAreTooMany(t *testing.T) {
	h := pykerneltest.New(t, probed)
	kernel, cell := h.Open("a", `frame = {'pid': 1, 'pgid': 1, 'leader': '', 'command': 'c', 'service': False, 'started_at': 1}
for i in range(4200):
    probe.api.send('job_start', {'job': f'm{i}', **frame})
probe.api.send('job_start', {'job': 'x' * 129, **frame})
probe.api.send('job_start', {'job': '', **frame})
probe.end('y' * 129)
probe.api.send('seen', {'cells': ['z' * 129], 'jobs': ['m1']})`)
	if m := h.Outcome(cell); m.Status != pykernel.CellOK {
		t.Fatalf("%+v", m)
	}
	live(h, kernel, 4096)
	if m := h.Read(1); len(m[0].Cells) != 0 || len(m[0].Jobs) != 1 {
		t.Errorf("told %+v", m)
	}
	h.Restart()
	live(h, kernel, 4096)
	value(t, h.Outcome(h.Run("a", kernel, "1 + 1", time.Minute)), "2")
	if n := h.Count(`select count(*) from job where length(id) > 128 or id = ''`); n != 0 {
		t.Errorf("%d rows", n)
	}
}

// P-045, P-128: a python kernel with a job or a cell in the background is not ended to make room.
func TestJobsKeepAKernel(t *testing.T) {
	h := pykerneltest.New(t, func(o *supervise.Options) { probed(o); o.MaxLive = 1 })
	kernel, cell := h.Open("a", "p = probe.start('j1', 'sleep', '30')")
	h.Outcome(cell)
	live(h, kernel, 1)
	h.Until("the row of the job", func() bool { return h.Count(`select count(*) from job`) == 1 })
	h.Outcome(h.Run("a", kernel, "1", time.Minute)) // what was acknowledged goes with the next commit
	err := h.Commit("a", func() []neuron.Op { return []neuron.Op{&pykernel.EvictKernel{ID: kernel, Reason: "room"}} })
	if err == nil {
		t.Error("a python kernel with a job was ended")
	}
	other, waits := h.Open("b", "2")
	h.Until("the other one waits", func() bool { o, ok := h.Sup.Observe(other); return ok && o.State == "waiting" && o.Live == nil })
	if h.Sup.Idle(kernel) {
		t.Error("a python kernel with a job counts as idle")
	}
	behind := h.RunBehind("a", kernel, "p.kill(); probe.end('j1', p, wake=False)\nimport asyncio\nawait asyncio.sleep(1)", time.Minute, 10*time.Millisecond)
	h.Backgrounded(behind)
	live(h, kernel, 0)
	if err := h.Commit("a", func() []neuron.Op { return []neuron.Op{&pykernel.EvictKernel{ID: kernel, Reason: "room"}} }); err == nil {
		t.Error("a python kernel with a cell in the background was ended")
	}
	if h.Outcomes(waits) != 0 {
		t.Error("the other one did not wait")
	}
	if m := h.Outcome(behind); m.Status != pykernel.CellOK {
		t.Errorf("%+v", m)
	}
	value(t, h.Outcome(waits), "2") // it is idle now, and makes room
	h.Outcome(h.Run("b", other, "probe.api.report_jobs('r', [{'id': 'far', 'command': 'make', 'service': True, 'started': 5}])", time.Minute))
	live(h, other, 1)
	if h.Sup.Idle(other) {
		t.Error("a python kernel with a job elsewhere counts as idle")
	}
	h.Outcome(h.Run("b", other, "probe.api.report_jobs('r', [])", time.Minute))
	live(h, other, 0)
	h.Until("it is idle", func() bool { return h.Sup.Idle(other) })
}

// P-001, P-123: what a python kernel says of its jobs again after a restart of the daemon converges with what was recorded: the end of one
// that ended meanwhile is told, those that run are known, and one whose end nobody
// saw is lost.
func TestJobsAfterARestart(t *testing.T) {
	h := pykerneltest.New(t, probed)
	kernel, cell := h.Open("a", `p = probe.start('j1', 'sh', '-c', 'while ! test -e end; do sleep 0.02; done; exit 3')
probe.watch('j1', p)
q = probe.start('j2', 'sleep', '60')`)
	h.Outcome(cell)
	live(h, kernel, 2)
	h.Until("the rows of the jobs", func() bool { return h.Count(`select count(*) from job where state = 'running'`) == 2 })
	h.Stop()
	if err := os.WriteFile(filepath.Join(h.Workspace, "end"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.Start()
	m := h.JobEnded("j1")
	if len(m) != 1 || *m[0].ExitCode != 3 || m[0].DurationMS <= 0 {
		t.Errorf("told %+v", m)
	}
	if o := live(h, kernel, 1); o.Jobs[0].ID != "j2" {
		t.Errorf("observed %+v", o)
	}
	h.Restart()
	live(h, kernel, 1)
	h.Outcome(h.Run("a", kernel, "1", time.Minute))
	if n := h.JobsEnded("j1"); n != 1 {
		t.Errorf("the end was told %d times", n)
	}
	// One that is recorded, and that the python kernel knows nothing of: its end is nowhere.
	err := h.Engine.Write(t.Context(), neuron.PlaceOf("s-a"), &pykernel.InsertJob{Kernel: kernel, Session: "s-a", Job: pykernel.JobStart{Job: "ghost"}})
	if err != nil {
		t.Fatal(err)
	}
	h.Restart()
	for range 3 { // what it acknowledges of these says that it has repeated all that it had to
		h.Outcome(h.Run("a", kernel, "1", time.Minute))
	}
	h.Until("the ghost is lost", func() bool { return h.Count(`select count(*) from job where id = 'ghost' and state = 'lost'`) == 1 })
	if n := h.Count(`select count(*) from job where id = 'j2' and state = 'running'`); n != 1 {
		t.Error("the job that runs is not recorded as running")
	}
}

// P-139, P-122: a python kernel that dies while no daemon runs still has its jobs ended: their groups are recorded.
func TestJobsOfADeadKernel(t *testing.T) {
	h := pykerneltest.New(t, probed)
	// The job forgets the environment, by which it would be found otherwise.
	kernel, cell := h.Open("a", "p = probe.start('j1', 'env', '-i', '/bin/sh', '-c', 'sleep 300 & echo $! > child; wait')")
	h.Outcome(cell)
	o := live(h, kernel, 1)
	child := pidIn(h, "child")
	h.Until("the row of the job", func() bool { return h.Count(`select count(*) from job`) == 1 })
	pid := h.Sup.List()[0].OSPID
	h.Stop()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if !alive(o.Jobs[0].PID) || !alive(child) {
		t.Fatal("the job ended with its python kernel")
	}
	h.Start()
	m := h.Gone(kernel)
	if alive(o.Jobs[0].PID) || alive(child) {
		t.Error("the job lives on")
	}
	if len(m.Jobs) != 1 || m.Jobs[0].ID != "j1" {
		t.Errorf("gone with %+v", m)
	}
	if n := h.Count(`select count(*) from job where state = 'lost' and ended_at > 0`); n != 1 {
		t.Error("the row of the job does not say that it is lost")
	}
}

// P-052, P-208: a job is stopped with all of its group, however it takes SIGTERM, and only while it is that very group.
func TestStopJob(t *testing.T) {
	h := pykerneltest.New(t, probed)
	kernel, cell := h.Open("a", `p = probe.start('j1', 'sh', '-c', 'trap "" TERM; sh -c "trap \\"\\" TERM; echo \\$\\$ > child; while :; do sleep 0.1; done" & while :; do sleep 0.1; done')
q = probe.start('old', 'sleep', '60', leader='7')
r = probe.start('own', 'sleep', '60', pgid=__import__('os').getpgrp())
s = probe.start('strange', 'sleep', '60', leader='1\0')`)
	h.Outcome(cell)
	o := live(h, kernel, 4)
	child := pidIn(h, "child")
	if err := h.Sup.StopJob(t.Context(), kernel, "j1"); err != nil {
		t.Fatal(err)
	}
	if alive(o.Jobs[0].PID) || alive(child) {
		t.Error("the job lives on")
	}
	if err := h.Sup.StopJob(t.Context(), kernel, "none"); !errors.Is(err, supervise.ErrUnknownJob) {
		t.Errorf("a job that is not there: %v", err)
	}
	if err := h.Sup.StopJob(t.Context(), "none", "j1"); !errors.Is(err, supervise.ErrUnknownKernel) {
		t.Errorf("a python kernel that is not there: %v", err)
	}
	// Another process has the number now: it is spared.
	_ = h.Sup.StopJob(t.Context(), kernel, "old")
	if !alive(o.Jobs[1].PID) {
		t.Error("another process was ended")
	}
	// The group of the python kernel itself is not a job's to end: it is asked, and knows no such job.
	if err := h.Sup.StopJob(t.Context(), kernel, "own"); !errors.Is(err, supervise.ErrUnknownJob) {
		t.Errorf("a job in the group of its python kernel: %v", err)
	}
	// One that is named by nothing that could be a start time is nobody's to end.
	if err := h.Sup.StopJob(t.Context(), kernel, "strange"); !errors.Is(err, supervise.ErrUnknownJob) || !alive(o.Jobs[3].PID) {
		t.Errorf("a job without a start time: %v", err)
	}
	h.Until("its row", func() bool { return h.Count(`select count(*) from job where id = 'strange' and leader = ''`) == 1 })
	value(t, h.Outcome(h.Run("a", kernel, "p.wait(); q.kill(); r.kill(); s.kill(); 5", time.Minute)), "5")
}

// P-015, P-044, P-053: what a python kernel had to drop while no daemon took it is told all the same, as far as it is known: nobody
// waits for ever for the end of a cell or job.
func TestDroppedEndsAreTold(t *testing.T) {
	h := pykerneltest.New(t, probed)
	kernel, cell := h.Open("a", `import asyncio, os
p = probe.start('j1', 'sleep', '60')
probe.start('j2', 'sleep', '60')
async def there(name):
    while not os.path.exists(name):
        await asyncio.sleep(0.01)
async def flood():
    await there('flood')
    for i in range(4200):
        probe.api.send('cleanup', {'errors': []})
    open('flooded', 'w').close()
task = asyncio.create_task(flood())`)
	h.Outcome(cell)
	live(h, kernel, 2)
	dropped := h.Run("a", kernel, "await there('go'); p.kill(); probe.end('j1', p); asyncio.get_running_loop().call_later(0.3, lambda: open('flood', 'w').close())", time.Minute)
	stays := h.Run("a", kernel, "await there('end')", time.Minute)
	h.Until("both cells are there", func() bool { o, _ := h.Sup.Observe(kernel); return len(o.Cells) == 2 })
	h.Outcome(h.Run("a", kernel, "1", time.Minute)) // so that they are, too, in the python kernel
	h.Stop()
	touch := func(name string) {
		if err := os.WriteFile(filepath.Join(h.Workspace, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	touch("go")
	h.Until("the flood", func() bool { _, err := os.Stat(filepath.Join(h.Workspace, "flooded")); return err == nil })
	h.Start()
	if m := h.Outcome(dropped); m.Status != pykernel.CellUnknown || !strings.Contains(m.Note, "drop") {
		t.Errorf("%+v", m)
	}
	if m := h.JobEnded("j1"); len(m) != 1 || !m[0].Wake || m[0].ExitCode != nil || m[0].DurationMS <= 0 || m[0].Command != "sleep 60" {
		t.Errorf("%+v", m)
	}
	if n := h.Count(`select count(*) from job where id = 'j1' and state = 'lost' or id = 'j2' and state = 'running'`); n != 2 {
		t.Errorf("%d rows are right", n)
	}
	live(h, kernel, 1)
	touch("end")
	if m := h.Outcome(stays); m.Status != pykernel.CellOK || h.Outcomes(dropped) != 1 || h.JobsEnded("j2") != 0 {
		t.Errorf("%+v", m)
	}
}
