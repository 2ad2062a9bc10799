package view

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/pykernel"
	"soma/wire"
)

// ErrNoJob is the error of Owners.StopJob where no such job runs.
var ErrNoJob = errors.New("no such job runs")

// Owners are who own the python kernels of this node. All methods may be called from many goroutines.
type Owners interface {
	// Observe returns what is known of a python kernel without asking it; it never blocks. It is false for one that is not owned
	// here.
	Observe(kernel string) (pykernel.Observation, bool)
	// Watch calls changed, which must not block, after each change of what Observe returns, until stop is called.
	Watch(kernel string, changed func()) (stop func())
	// Ask asks a python kernel; its refusal is an Answer. The error says that it cannot be asked now.
	Ask(ctx context.Context, kernel string, a pykernel.Ask) (pykernel.Answer, error)
	// StopJob returns when nothing of a job runs any more. Error: ErrNoJob; after any other one the job may still run.
	StopJob(ctx context.Context, kernel, job string) error
	// Restart ends a python kernel, and returns what it has ended with it.
	Restart(ctx context.Context, kernel string) (jobs, cells []string, err error)
}

// Options are the parts of a View; all are needed but NodeOf.
type Options struct {
	Reader neuron.Reader
	Owners Owners
	Node   string // of the python kernels that are owned here
	Shared bool   // other nodes have python kernels in the same store
	// Output reads the kept output of a cell that has ended.
	Output func(ctx context.Context, cell string, offset, limit int64) (wire.OutputPage, error)
	// OutputDir is where outputs are spilled: no other file is ever read.
	OutputDir string
}

// View answers questions about python kernels. It is safe for use from many goroutines.
type View struct {
	o     Options
	mu    sync.Mutex
	watch map[*watch]bool
}

// New returns a view.
func New(o Options) *View { return &View{o: o, watch: map[*watch]bool{}} }

// row is a python kernel as it is stored.
type row struct {
	wire.PyKernel
	node string
}

const columns = `id, branch, session, node, workspace, python, state, reason, os_pid, used_at, created_at, ended_at,
coalesce((select max(p.pid) from process p where p.session = kernel.session and p.branch = kernel.branch), 0)`

func scan(fields func(...any) error) (r row, err error) {
	var branch []byte
	var used, created int64
	var ended *int64
	if err := fields(&r.ID, &branch, &r.Session, &r.node, &r.Workspace, &r.Python, &r.State, &r.Reason, &r.OSPID, &used, &created, &ended, &r.PID); err != nil {
		return r, err
	}
	id, err := ident.FromBytes(branch)
	r.Branch, r.UsedAt, r.StartedAt = id.String(), time.UnixMicro(used).UTC(), time.UnixMicro(created).UTC()
	switch {
	case ended != nil:
		at := time.UnixMicro(*ended).UTC()
		r.EndedAt, r.OSPID = &at, 0
	case r.State == string(pykernel.Running):
		r.State = "attached"
	}
	return r, err
}

// What rows reads, the newest first. The states are named one by one, so that an index finds them.
const (
	all      = `select ` + columns + ` from kernel order by id desc limit ?`
	live     = `select ` + columns + ` from kernel where state in ('booting', 'running', 'ending') order by id desc limit ?`
	lastOf   = `select ` + columns + ` from kernel where branch = ? order by id desc limit 1`
	liveLast = `select ` + columns + ` from kernel where branch = ? and state in ('booting', 'running', 'ending') order by id desc limit 1`
)

func (v *View) rows(ctx context.Context, query string, arg any) (list []row, err error) {
	err = v.o.Reader.Query(ctx, query, []any{arg}, func(fields func(...any) error) error {
		r, err := scan(fields)
		list = append(list, r)
		return err
	})
	return list, err
}

// Kernels returns the newest wire.MaxPyKernels python kernels by age: live ones, with ended also those that have ended.
func (v *View) Kernels(ctx context.Context, ended bool) ([]wire.PyKernel, error) {
	query := live
	if ended {
		query = all
	}
	rows, err := v.rows(ctx, query, int64(wire.MaxPyKernels))
	list := make([]wire.PyKernel, len(rows))
	for i, r := range rows {
		list[len(rows)-1-i], _ = v.observed(r)
	}
	return list, err
}

// observed adds what the owner of a python kernel knows, nil where nobody knows anything.
func (v *View) observed(r row) (wire.PyKernel, *pykernel.Observation) {
	k := r.PyKernel
	if v.o.Shared {
		k.Node = r.node
	}
	if k.EndedAt != nil || r.node != v.o.Node {
		return k, nil
	}
	seen, ok := v.o.Owners.Observe(k.ID)
	if !ok {
		return k, nil
	}
	cells := len(seen.Cells)
	k.State, k.OSPID, k.Cells, k.Jobs, k.Memory = seen.State, seen.OSPID, &cells, seen.Live, resident(seen.OSPID)
	if k.State == "waiting" { // for its turn to boot
		k.State = string(pykernel.Booting)
	}
	return k, &seen
}

// resident is the memory of an OS process in bytes, nil where it cannot be told.
func resident(pid int) *int64 {
	if pid == 0 {
		return nil
	}
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		return nil
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return nil
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return nil
	}
	n := pages * int64(os.Getpagesize())
	return &n
}

// current returns the newest python kernel of a branch that has not ended, nil where there is none. The error is a *wire.Error
// with not_found for a branch that there is not.
func (v *View) current(ctx context.Context, branch string) (*row, error) {
	id, err := v.branch(ctx, branch)
	if err != nil {
		return nil, err
	}
	rows, err := v.rows(ctx, liveLast, id[:])
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return &rows[0], nil
}

func (v *View) branch(ctx context.Context, branch string) (ident.ID, error) {
	id, err := ident.Parse(branch)
	found := false
	if err == nil {
		if err := v.o.Reader.Query(ctx, `select 1 from branch where id = ?`, []any{id[:]}, func(func(...any) error) error { found = true; return nil }); err != nil {
			return id, err
		}
	}
	if !found {
		return id, wire.Errorf(wire.NotFound, "there is no branch %.64s", branch)
	}
	return id, nil
}

// SessionOf returns the session of a branch, "" where there is no such branch.
func (v *View) SessionOf(ctx context.Context, branch string) (session string, err error) {
	id, err := ident.Parse(branch)
	if err != nil {
		return "", nil
	}
	err = v.o.Reader.Query(ctx, `select session from branch where id = ?`, []any{id[:]}, func(fields func(...any) error) error { return fields(&session) })
	return session, err
}

// Kernel returns what is known of the python kernel of a branch. Of one that has told nothing yet it waits for the first word, up
// to a second.
func (v *View) Kernel(ctx context.Context, branch string) (wire.KernelView, error) {
	r, err := v.current(ctx, branch)
	if err != nil {
		return wire.KernelView{}, err
	}
	out := wire.KernelView{Branch: branch}
	if r == nil {
		out.LiveJobs, out.Running = new(int), &[]wire.RunningJob{}
		return out, nil
	}
	k, seen := v.heard(ctx, *r)
	out.Kernel = &k
	if seen != nil && seen.Live != nil {
		jobs := running(seen.Jobs)
		out.LiveJobs, out.Running = seen.Live, &jobs
	}
	return out, nil
}

// heard is observed, after the first word of a python kernel that has told nothing yet.
func (v *View) heard(ctx context.Context, r row) (wire.PyKernel, *pykernel.Observation) {
	k, seen := v.observed(r)
	if seen == nil || seen.Live != nil || seen.State == "waiting" { // that one may wait for long
		return k, seen
	}
	v.firstWord(ctx, r.ID)
	return v.observed(r)
}

// firstWait bounds the wait for what a python kernel that was just started, or is found again, says of itself.
const firstWait = time.Second

// firstWord waits until a python kernel has told of its jobs, is gone, or the time is over (P-048).
func (v *View) firstWord(ctx context.Context, kernel string) {
	ctx, cancel := context.WithTimeout(ctx, firstWait)
	defer cancel()
	news := make(chan struct{}, 1)
	defer v.o.Owners.Watch(kernel, func() {
		select {
		case news <- struct{}{}:
		default:
		}
	})()
	for {
		if seen, ok := v.o.Owners.Observe(kernel); !ok || seen.Live != nil {
			return
		}
		select {
		case <-news:
		case <-ctx.Done():
			return
		}
	}
}

// Restart ends the python kernel of a branch.
func (v *View) Restart(ctx context.Context, branch string) (wire.RestartedKernel, error) {
	r, err := v.current(ctx, branch)
	if err != nil || r == nil {
		return wire.RestartedKernel{}, err
	}
	jobs, cells, err := v.o.Owners.Restart(ctx, r.ID)
	if err != nil {
		if ctx.Err() != nil {
			err = errors.New("it has not ended in time")
		}
		return wire.RestartedKernel{}, wire.Errorf(wire.NotRestarted, "cannot end the python kernel: %v", err).
			Do("see soma kernel show, and try again")
	}
	return wire.RestartedKernel{Old: r.ID, Jobs: jobs, Cells: cells}, nil
}

// Complete returns the names that may stand at a place in a text.
func (v *View) Complete(ctx context.Context, branch string, c wire.Complete) (wire.Completion, error) {
	r, err := v.current(ctx, branch)
	if err != nil || r == nil {
		return wire.Completion{Start: c.Cursor}, err
	}
	a, err := v.ask(ctx, r.ID, pykernel.Ask{Type: pykernel.FrameComplete, Text: &c.Text, Cursor: &c.Cursor})
	if err != nil {
		return wire.Completion{}, err
	}
	return wire.Completion{Start: a.Start, Names: a.Names[:min(len(a.Names), wire.MaxNames)]}, nil
}

// ask asks a python kernel. Errors are of type *wire.Error: what the kernel has refused, and kernel_unreachable.
func (v *View) ask(ctx context.Context, kernel string, q pykernel.Ask) (pykernel.Answer, error) {
	a, err := v.o.Owners.Ask(ctx, kernel, q)
	if err != nil {
		return a, unreachable(err)
	}
	if a.OK {
		return a, nil
	}
	code := wire.Unreachable
	switch a.Code {
	case pykernel.CodeJobNotFound:
		code = wire.JobNotFound
	case pykernel.CodeCellNotFound:
		code = wire.NotFound
	case pykernel.CodeOutputLost:
		code = wire.OutputLost
	case pykernel.CodeInvalid:
		code = wire.BadRequest
	}
	return a, wire.Errorf(code, "%.300s", a.Error)
}

func unreachable(err error) *wire.Error {
	return wire.Errorf(wire.Unreachable, "the python kernel cannot be asked now: %.300v", err).Do("try again later")
}
