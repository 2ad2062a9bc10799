package daemon

import (
	"context"
	"errors"
	"time"

	"soma/internal/neuron"
	"soma/internal/pykernel"
	"soma/internal/pykernel/supervise"
	"soma/internal/pykernel/view"
	"soma/wire"
)

// viewed makes what tells of python kernels; the supervisor is there already.
func (d *daemon) viewed() *view.View {
	return view.New(view.Options{
		Reader: d.store, Owners: owners{d.sup}, Node: d.node, Shared: d.shared != nil, Output: d.host.Output, OutputDir: d.home.Output(),
	})
}

// owners is the supervisor as the view sees it.
type owners struct{ *supervise.Supervisor }

// Ask asks a python kernel; its refusal is an answer.
func (o owners) Ask(ctx context.Context, kernel string, q pykernel.Ask) (pykernel.Answer, error) {
	a, err := o.Supervisor.Ask(ctx, kernel, q)
	var refused *supervise.Refused
	if errors.As(err, &refused) {
		return pykernel.Answer{Code: refused.Code, Error: refused.Text}, nil
	}
	return a, err
}

// StopJob stops a job.
func (o owners) StopJob(ctx context.Context, kernel, job string) error {
	err := o.Supervisor.StopJob(ctx, kernel, job)
	if errors.Is(err, supervise.ErrUnknownJob) || errors.Is(err, supervise.ErrUnknownKernel) {
		return view.ErrNoJob
	}
	return err
}

// Restart ends a python kernel, and tells what ended with it.
func (o owners) Restart(ctx context.Context, kernel string) (jobs, cells []string, err error) {
	left, err := o.Supervisor.Restart(ctx, kernel)
	for _, j := range left.Jobs {
		jobs = append(jobs, j.ID)
	}
	return jobs, left.Cells, err
}

// readyTime bounds the question whether the store can be read.
const readyTime = 2 * time.Second

// Ready says why the daemon takes no work now.
func (d *daemon) Ready(ctx context.Context) error {
	d.mu.Lock()
	asked, fatal := d.asked, d.fatal
	d.mu.Unlock()
	switch {
	case asked:
		return wire.Errorf(wire.Stopping, "the daemon is stopping")
	case fatal != nil:
		return wire.Errorf(wire.Unavailable, "the daemon has lost its store, and ends or begins anew")
	case d.shared != nil && d.engine.Believes() != nil:
		return wire.Errorf(wire.Unavailable, "the daemon may have lost its lease")
	}
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	err := d.store.Query(ctx, `select 1`, nil, func(scan func(...any) error) error { return scan(new(int)) })
	switch {
	case err == nil:
		return nil
	case errors.Is(err, neuron.ErrStoreAway), errors.Is(err, context.DeadlineExceeded):
		return wire.Errorf(wire.Unavailable, "cannot reach the database")
	}
	d.log.Warn("the daemon is not ready", "error", err)
	return wire.Errorf(wire.Unavailable, "cannot read from the store").Do("see soma logs --daemon")
}
