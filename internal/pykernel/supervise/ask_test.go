package supervise_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"soma/internal/config"
	"soma/internal/pykernel"
	"soma/internal/pykernel/bundle"
	"soma/internal/pykernel/pykerneltest"
	"soma/internal/pykernel/supervise"
)

// P-051, P-130: a python kernel's own book and its pages are asked for, each ask under an id of its own; a refusal has its code.
func TestAsk(t *testing.T) {
	h := pykerneltest.New(t, probed)
	kernel, cell := h.Open("a", "1")
	h.Outcome(cell)
	ask := func(a pykernel.Ask) (pykernel.Answer, error) { return h.Sup.Ask(t.Context(), kernel, a) }
	if a, err := ask(pykernel.Ask{Type: pykernel.FrameJobList}); err != nil || len(a.Jobs) != 1 || a.Jobs[0].ID != "p1" || a.Jobs[0].State != "running" {
		t.Errorf("jobs %+v, %v", a, err)
	}
	if a, err := ask(pykernel.Ask{Type: pykernel.FrameJobRead, Job: "p1", Limit: pykernel.MinPage}); err != nil || a.Page == nil || a.Page.Text != "page" || !a.Page.Running {
		t.Errorf("page %+v, %v", a, err)
	}
	var refused *supervise.Refused
	if _, err := ask(pykernel.Ask{Type: pykernel.FrameJobRead, Job: "none", Limit: 100}); !errors.As(err, &refused) || refused.Code != pykernel.CodeJobNotFound {
		t.Errorf("a job that is not there: %v", err)
	}
	text, cursor := "prin", 4
	if a, err := ask(pykernel.Ask{Type: pykernel.FrameComplete, Text: &text, Cursor: &cursor}); err != nil || len(a.Names) == 0 {
		t.Errorf("names %+v, %v", a, err)
	}
	if _, err := h.Sup.Ask(t.Context(), "none", pykernel.Ask{Type: pykernel.FrameJobList}); !errors.Is(err, supervise.ErrUnknownKernel) {
		t.Errorf("a python kernel that is not there: %v", err)
	}
	var all sync.WaitGroup
	for range 20 { // at once: each has its own answer
		all.Go(func() {
			if a, err := ask(pykernel.Ask{Type: pykernel.FrameJobRead, Job: "p1", Limit: 100}); err != nil || a.Page == nil {
				t.Errorf("page %+v, %v", a, err)
			}
		})
	}
	all.Wait()
	h.Outcome(h.Run("a", kernel, "1", time.Minute))
	h.Outcome(h.Run("a", kernel, "1", time.Minute))
	h.Until("the rows of asks go", func() bool { return h.Count(`select count(*) from kernel_frame where cell = ''`) <= 1 })
}

// P-051, P-025: one that does not answer is waited for, 10 s for an ask and 15 s for the stop of a job elsewhere, which is then
// unconfirmed; its late answer is dropped. Each is sent once.
func TestNoAnswer(t *testing.T) {
	t.Parallel()
	h := pykerneltest.New(t, probed)
	kernel, cell := h.Open("a", "probe.api.report_jobs('r', [{'id': 'far', 'command': 'make', 'service': False, 'started': 5}])")
	h.Outcome(cell)
	live(h, kernel, 1)
	pid := h.Sup.List()[0].OSPID
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	var wait sync.WaitGroup
	var asked, stopped time.Duration
	var askErr, stopErr error
	wait.Go(func() {
		_, askErr = h.Sup.Ask(t.Context(), kernel, pykernel.Ask{Type: pykernel.FrameJobList})
		asked = time.Since(began)
	})
	wait.Go(func() {
		stopErr = h.Sup.StopJob(t.Context(), kernel, "far")
		stopped = time.Since(began)
	})
	wait.Wait()
	if !errors.Is(askErr, supervise.ErrUnanswered) || asked < 10*time.Second || asked > 14*time.Second {
		t.Errorf("an ask ends after %s with %v", asked, askErr)
	}
	if !errors.Is(stopErr, supervise.ErrUnanswered) || stopped < 15*time.Second {
		t.Errorf("a stop ends after %s with %v", stopped, stopErr)
	}
	if err := unix.Kill(pid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if a, err := h.Sup.Ask(t.Context(), kernel, pykernel.Ask{Type: pykernel.FrameJobList}); err != nil || len(a.Jobs) != 1 {
		t.Errorf("after late answers: %+v, %v", a, err)
	}
	if n := h.Count(`select count(*) from kernel_frame where body like '%job_stop%'`); n > 1 {
		t.Errorf("the stop was sent %d times", n)
	}
}

// P-025, P-052: the stop of a job elsewhere is asked of the python kernel, which answers once.
func TestStopJobElsewhere(t *testing.T) {
	h := pykerneltest.New(t, probed)
	kernel, cell := h.Open("a", `import asyncio
async def stop():
    probe.api.report_jobs('r', [])
probe.api.report_jobs('r', [{'id': 'far', 'command': 'make', 'service': False, 'started': 5}, {'id': 'lost', 'command': 'make', 'service': True, 'started': 5}])
class Stop:
    def __await__(self):
        return stop().__await__()
probe.stops['far'] = Stop()`)
	if m := h.Outcome(cell); m.Status != pykernel.CellOK {
		t.Fatalf("%+v", m)
	}
	live(h, kernel, 2)
	if err := h.Sup.StopJob(t.Context(), kernel, "lost"); !errors.Is(err, supervise.ErrUnknownJob) {
		t.Errorf("a job that the python kernel does not know: %v", err)
	}
	if err := h.Sup.StopJob(t.Context(), kernel, "far"); err != nil {
		t.Errorf("stop: %v", err)
	}
	live(h, kernel, 0)
}

// P-025, P-051: nothing is asked of one that cannot be reached, or that runs sources of another build; nothing is queued for it.
func TestUnreachable(t *testing.T) {
	var cut atomic.Bool
	h := pykerneltest.New(t, func(o *supervise.Options) {
		probed(o)
		o.Dial = func(ctx context.Context, socket string) (net.Conn, error) {
			if cut.Load() {
				return nil, errors.New("no way")
			}
			return config.DialSocket(ctx, socket)
		}
	})
	kernel, cell := h.Open("a", "1")
	h.Outcome(cell)
	var digest string
	if err := h.Store.Query(t.Context(), `select bundle from kernel`, nil, func(scan func(...any) error) error { return scan(&digest) }); err != nil {
		t.Fatal(err)
	}
	h.Stop()
	cut.Store(true)
	h.Start()
	frames := func() int { return h.Count(`select count(*) from kernel_frame`) }
	before := frames()
	if _, err := h.Sup.Ask(t.Context(), kernel, pykernel.Ask{Type: pykernel.FrameJobList}); !errors.Is(err, supervise.ErrUnreachable) {
		t.Errorf("without a connection: %v", err)
	}
	if frames() != before {
		t.Error("something was queued")
	}
	h.Stop()
	cut.Store(false)
	was := h.Change
	h.Change = func(o *supervise.Options) {
		was(o)
		o.Sources = []bundle.Module{{Name: "soma_probe", Source: append(probeSource[:len(probeSource):len(probeSource)], "# changed\n"...)}}
	}
	h.Start()
	h.Attached(kernel)
	if _, err := h.Sup.Ask(t.Context(), kernel, pykernel.Ask{Type: pykernel.FrameJobList}); !errors.Is(err, supervise.ErrStale) {
		t.Errorf("of another build: %v", err)
	}
	if o, ok := h.Sup.Observe(kernel); !ok || !o.Stale || o.Live == nil {
		t.Errorf("observed %+v", o)
	}
	value(t, h.Outcome(h.Run("a", kernel, "1 + 1", time.Minute)), "2") // cells it runs all the same
	if n := h.Count(`select count(*) from kernel where bundle = ?`, digest); n != 1 {
		t.Error("the row does not say what the python kernel runs")
	}
	h.Change = was
	h.Restart()
	h.Attached(kernel)
	if _, err := h.Sup.Ask(t.Context(), kernel, pykernel.Ask{Type: pykernel.FrameJobList}); err != nil {
		t.Errorf("of this build again: %v", err)
	}
}

// A python kernel that is restarted is gone when that is answered, and what ended with it is named.
// P-099
func TestRestart(t *testing.T) {
	h := pykerneltest.New(t, probed)
	kernel, cell := h.Open("a", "p = probe.start('j1', 'sleep', '300')")
	h.Outcome(cell)
	pid := live(h, kernel, 1).Jobs[0].PID
	open := h.Run("a", kernel, "print('here', flush=True)\nimport asyncio\nawait asyncio.sleep(60)", time.Minute)
	h.Shown(open, "here")
	left, err := h.Sup.Restart(t.Context(), kernel)
	if err != nil || len(left.Jobs) != 1 || left.Jobs[0].ID != "j1" || len(left.Cells) != 1 || left.Cells[0] != open {
		t.Errorf("ended %+v, %v", left, err)
	}
	if _, ok := h.Sup.Observe(kernel); ok || alive(pid) {
		t.Error("it lives on")
	}
	if m := h.Gone(kernel); m.Reason != "it was restarted" || len(m.Jobs) != 1 {
		t.Errorf("gone %+v", m)
	}
	if _, err := h.Sup.Restart(t.Context(), kernel); !errors.Is(err, supervise.ErrUnknownKernel) {
		t.Errorf("twice: %v", err)
	}
}
