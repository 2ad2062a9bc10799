package supervise

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"soma/ident"
	"soma/internal/lifecycle"
	"soma/internal/neuron"
	"soma/internal/osproc"
	"soma/internal/pykernel"
	"soma/internal/pykernel/link"
)

// kernel is one python kernel and what its owner goroutine (own) knows of it.
type kernel struct {
	s         *Supervisor
	id        string
	ident     ident.ID
	owner     neuron.ID
	session   string
	branch    ident.ID
	place     neuron.Place
	workspace string
	python    string
	token     string
	dir       string // its run directory
	link      *link.Link
	work      *work
	tasks     lifecycle.Tasks
	stop      chan struct{}        // closed by end
	leaving   chan struct{}        // closed by leave
	foreign   bool                 // it ran at another node: nothing of it is here but its rows
	born      chan *osproc.Process // to be watched
	// noted is closed when the row says running: before that no frame is written.
	noted chan struct{}

	mu       sync.Mutex
	phase    phase
	since    time.Time
	used     time.Time
	reason   string            // why it is to end, set with stop
	procs    []*osproc.Process // all that were started or found
	proc     *osproc.Process   // the one that listens
	lost     osproc.Group      // of a process that was gone when this daemon started
	fresh    bool              // its row has never been running: it may be booted
	cells    []*cell           // not finished, in frame order
	probes   []probe
	pings    uint64
	alarm    chan struct{}                // the watch looks again
	items    map[string]uint64            // inbox rows, with the number of the frame that they answer (0: sent to an earlier daemon)
	proven   uint64                       // the python kernel sends nothing again up to this number
	resent   bool                         // what an earlier daemon has not acknowledged has come again
	acked    []uint64                     // frame rows to be deleted with the next commit
	calls    map[string]bool              // host calls that run here
	begun    map[string]bool              // host calls that an earlier daemon began and did not answer
	reply    map[uint64]string            // frames of replies, by number, to their calls
	failed   bool                         // it said startup_error: no cell has run
	runs     string                       // the digest of its sources, as its hello says; empty before
	modules  string                       // that it was started with, joined by commas; empty: not known
	eligible bool                         // as its last cells frame says
	jobs     map[string]pykernel.JobStart // that run, as processes of this machine
	starts   []jobStart                   // not recorded yet
	crowded  bool                         // it was said that more is told of jobs than is recorded
	missing  map[string]pykernel.JobStart // recorded, not in the hello: their end is to come
	dropped  []*cell                      // that have ended, but their outcomes were not kept for this daemon: unless they come again
	settled  uint64                       // the ping whose pong says that all has come again; 0: none is out
	external pykernel.Jobs                // those elsewhere
	// jobsKnown: jobs and external are what it says itself, in its hello and since.
	jobsKnown bool
	asks      map[string]chan<- pykernel.Answer // that wait, by id
	seen      atomic.Pointer[pykernel.Observation]

	watching sync.Mutex
	watchers []*watcher

	deaf time.Time // since when it owes its hello while no cell is open, zero for not
}

func (s *Supervisor) newKernel(k *pykernel.InsertKernel) (*kernel, error) {
	id, err := ident.Parse(k.ID)
	if err != nil {
		return nil, err
	}
	owner, err := neuron.ParseID(k.Owner)
	if err != nil {
		return nil, err
	}
	now := s.opt.Now()
	made := &kernel{
		s: s, id: k.ID, ident: id, owner: owner, session: k.Session, branch: k.Branch, place: s.opt.Place(owner, k.Session), workspace: k.Workspace,
		python: k.Python, token: k.Token, dir: filepath.Join(s.opt.RunDir, k.ID), link: link.New(), work: newWork(),
		stop: make(chan struct{}), leaving: make(chan struct{}), born: make(chan *osproc.Process, 4), noted: make(chan struct{}), phase: waiting, since: now, used: now, fresh: true,
		alarm: make(chan struct{}, 1), items: map[string]uint64{}, calls: map[string]bool{}, begun: map[string]bool{},
		reply: map[uint64]string{}, jobs: map[string]pykernel.JobStart{}, missing: map[string]pykernel.JobStart{},
		asks: map[string]chan<- pykernel.Answer{},
	}
	made.publish()
	return made, nil
}

// enter moves to the next phase. A wrong step is a mistake of this room, said loudly and not taken.
func (k *kernel) enter(next phase) {
	k.mu.Lock()
	if !k.phase.leadsTo(next) {
		k.s.opt.Log.Error("python kernel in a wrong phase", "kernel", k.id, "phase", k.phase, "next", next)
		k.mu.Unlock()
		return
	}
	k.phase, k.since = next, k.s.opt.Now()
	k.mu.Unlock()
	k.publish()
}

// end asks the owner goroutine to end the python kernel; the first reason counts.
func (k *kernel) end(reason string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.reason == "" {
		k.reason = cmp.Or(reason, "it was ended")
		close(k.stop)
	}
}

// own is the owner goroutine: it lives as long as the python kernel, or until ctx ends (the kernel then lives on).
func (k *kernel) own(ctx context.Context) error {
	k.tasks.Report = func(name string, err error) { k.log().Error("python kernel task failed", "task", name, "err", err) }
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	k.spawn(ctx, "leave", func(ctx context.Context) error {
		select {
		case <-k.leaving:
			cancel()
		case <-ctx.Done():
		}
		return nil
	})
	k.spawn(ctx, "work", func(ctx context.Context) error {
		defer func() {
			if ctx.Err() == nil { // it has panicked: nothing that comes from the process is taken any more
				k.end("an error of the daemon while it took what came from it")
			}
		}()
		return k.work.run(ctx)
	})
	k.spawn(ctx, "watch", k.watch)
	k.spawn(ctx, "exits", k.watchExits)
	// Tasks end with ctx or here: all that they wait for ends with their context.
	defer func() {
		_ = k.tasks.Stop(context.WithoutCancel(ctx))
		for _, p := range k.procs {
			p.Close()
		}
	}()
	reason := k.live(ctx)
	if ctx.Err() != nil {
		return nil
	}
	k.enter(ending)
	k.bury(ctx, reason)
	if ctx.Err() == nil {
		k.enter(over)
	}
	return nil
}

// spawn runs fn as a task of this python kernel; after own has returned it does nothing.
func (k *kernel) spawn(ctx context.Context, name string, fn func(context.Context) error) {
	_ = k.tasks.Go(ctx, name, fn)
}

// live boots or attaches, and serves until the python kernel is over; it returns why.
func (k *kernel) live(ctx context.Context) string {
	select {
	case <-k.stop:
		return k.reason
	default:
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	k.spawn(ctx, "end", func(ctx context.Context) error {
		select {
		case <-k.stop:
			cancel()
		case <-ctx.Done():
		}
		return nil
	})
	err := k.begin(ctx)
	if err == nil {
		err = k.stay(ctx)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.reason != "" {
		return k.reason
	}
	return fmt.Sprint(err)
}

// found notes a process that was started or found; own closes it.
func (k *kernel) found(p *osproc.Process) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.procs = append(k.procs, p)
	k.born <- p // at most a lock's holder, a child, and the holder that beat it
}

func (k *kernel) watchExits(ctx context.Context) error {
	for {
		select {
		case p := <-k.born:
			k.spawn(ctx, "exit", p.WatchExit)
		case <-ctx.Done():
			return nil
		}
	}
}

func (k *kernel) log() *slog.Logger { return k.s.opt.Log.With("kernel", k.id) }

// append takes a committed frame, of this daemon or (written) of an earlier one.
func (k *kernel) append(f *pykernel.AppendFrame, written bool) {
	head := readHead(f.Body)
	if head.Type == pykernel.FrameExecute {
		defer k.publish()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.used = k.s.opt.Now()
	switch head.Type {
	case pykernel.FrameExecute:
		k.cells = append(k.cells, &cell{id: head.Cell, seq: f.Seq, timeout: time.Duration(head.TimeoutMS) * time.Millisecond, at: f.At, cause: head.Cause})
		k.startClock()
	case pykernel.FrameReply:
		k.reply[f.Seq] = head.Call
	}
	k.link.Append(f.Seq, f.Body, written)
	if head.Type == pykernel.FrameInterrupt {
		if i := slices.IndexFunc(k.cells, func(c *cell) bool { return c.id == head.Cell && c.asked.IsZero() }); i >= 0 {
			k.cells[i].asked = time.Now()
			k.rouse()
		}
		k.probe(head.Cell)
	}
}

// idle reports whether no cell is open, no job runs and nothing is on its way, and since when.
func (k *kernel) idle() (since time.Time, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.used, k.phase == attached && len(k.cells) == 0 && len(k.calls) == 0 && len(k.jobs) == 0 && k.external.Live == 0 && k.reason == ""
}

func (k *kernel) status() Status {
	k.mu.Lock()
	defer k.mu.Unlock()
	st := Status{
		ID: k.id, Session: k.session, Owner: k.owner, Workspace: k.workspace, Python: k.python, State: string(k.phase),
		Cells: len(k.cells), Since: k.since, Used: k.used,
	}
	if k.proc != nil {
		st.OSPID = k.proc.PID
	}
	return st
}

func (k *kernel) process() *osproc.Process {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.proc
}
