package instance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"soma/bench/measure"
	"soma/client"
	"soma/wire"
)

const (
	coldRuns = 40
	warmRuns = 300
	idleTime = 20 * time.Second
)

// Cells returns kernel_cold_p50 and p95, and cell_commit_p50, from the commit of a cell's execute frame to the commit of its result as
// a follower of the session sees them, kernel_rss of the kernel after that, and idle_ticks of the daemon and one attached python kernel.
func Cells(ctx context.Context, dir, fs string) (lines []measure.Line, err error) {
	bin, err := build(ctx, dir)
	if err != nil {
		return nil, err
	}
	i, err := open(ctx, bin, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, i.close(ctx)) }()
	var cold []time.Duration
	for n := range coldRuns + 1 {
		s := fmt.Sprint("cold-", n)
		took, _, err := i.cells(ctx, s, dir, "1+1", 1, nil)
		if err != nil {
			return nil, err
		}
		if n > 0 { // the first one writes the bytecode
			cold = append(cold, took...)
		}
		if _, err := i.client.CloseSession(ctx, s); err != nil {
			return nil, err
		}
	}
	lines = append(lines, millis("kernel_cold_p50", median(cold), coldRuns, fs)) // sorts them
	lines = append(lines, millis("kernel_cold_p95", cold[coldRuns*95/100], coldRuns, fs))
	warm, _, err := i.cells(ctx, "warm", dir, "1+1", warmRuns+1, nil)
	if err != nil {
		return nil, err
	}
	lines = append(lines, millis("cell_commit_p50", median(warm[1:]), warmRuns, fs))
	st, err := i.client.Status(ctx)
	if err != nil || len(st.Kernels) != 1 {
		return nil, errors.Join(err, fmt.Errorf("%d kernels", len(st.Kernels)))
	}
	mb, err := resident(st.Kernels[0].PID)
	if err != nil {
		return nil, err
	}
	lines = append(lines, measure.Line{Name: "kernel_rss", Value: mb, Unit: "MB", N: 1, FS: fs})
	ticks, err := i.idle(ctx)
	return append(lines, measure.Line{Name: "idle_ticks", Value: float64(ticks), Unit: "ticks in 20 s", N: 1, FS: fs}), err
}

// cells runs code n times in a new session, one after the other, and returns how long each took for a follower (an event
// goes out right after its commit) and the last cell. between, if set, is called after each.
func (i *instance) cells(ctx context.Context, session, dir, code string, n int, between func() error) (all []time.Duration, last string, err error) {
	if _, err := i.client.OpenSession(ctx, session, wire.OpenSession{Kind: wire.SessionPy, Workspace: dir, Python: python}); err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	ready, took, lost := make(chan struct{}), make(chan time.Duration), make(chan error, 1)
	go func() {
		var began time.Time
		left := n
		_, err := i.client.Follow(ctx, session, wire.Cursor{}, func(f client.Frame) error {
			switch {
			case f.Event == nil:
			case f.Event.Kind == wire.SessionOpened:
				close(ready)
			case f.Event.Kind == wire.CellStarted:
				began = time.Now()
			case f.Event.Kind == wire.CellEnded:
				took <- time.Since(began)
				if left--; left == 0 {
					return client.ErrEnough
				}
			}
			return nil
		})
		lost <- err
	}()
	<-ready
	for c := range n {
		cell, err := i.client.RunCell(ctx, session, fmt.Sprint("c", c), wire.RunCell{Code: code})
		if err != nil {
			return nil, "", err
		}
		last = cell.ID
		select {
		case d := <-took:
			all = append(all, d)
		case err := <-lost:
			return nil, "", fmt.Errorf("the stream ended: %w", err)
		}
		if between != nil {
			if err := between(); err != nil {
				return nil, "", err
			}
		}
	}
	return all, last, <-lost
}

// idle counts the clock ticks of the daemon and its python kernels while nothing happens.
func (i *instance) idle(ctx context.Context) (int, error) {
	st, err := i.client.Status(ctx)
	if err != nil {
		return 0, err
	}
	i.client.Close()
	pids := []int{st.PID}
	for _, k := range st.Kernels {
		pids = append(pids, k.PID)
	}
	time.Sleep(time.Second) // what the last cell left to do is not idleness
	before, err := idleTicks(pids...)
	if err != nil {
		return 0, err
	}
	time.Sleep(idleTime)
	after, err := idleTicks(pids...)
	return after - before, err
}
