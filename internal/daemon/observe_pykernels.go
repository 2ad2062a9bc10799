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
type owners struct{ sup *supervise.Supervisor }

// Observe tells what the supervisor knows.
func (o owners) Observe(kernel string) (view.Observation, bool) {
	for _, k := range o.sup.List() {
		if k.ID == kernel {
			return view.Observation{State: k.State, OSPID: k.OSPID, Cells: k.Cells}, true
		}
	}
	return view.Observation{}, false
}

// Watch tells nothing yet.
func (o owners) Watch(string, func()) func() { return func() {} }

var errNotYet = errors.New("this build cannot ask it")

// Ask cannot ask yet.
func (o owners) Ask(context.Context, string, pykernel.Ask) (pykernel.Answer, error) {
	return pykernel.Answer{}, errNotYet
}

// StopJob cannot stop a job yet.
func (o owners) StopJob(context.Context, string, string) error { return view.ErrNoJob }

// Restart cannot restart yet.
func (o owners) Restart(context.Context, string) (jobs, cells []string, err error) {
	return nil, nil, errNotYet
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
