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
	coldRuns = 15
	warmRuns = 300
	idleTime = 20 * time.Second
)

// Cells returns kernel_cold_p50 and cell_commit_p50, from the turn that commits a cell's execute frame to the turn that
// commits its result, and idle_ticks of the daemon and one attached python kernel.
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
		if _, err := i.client.OpenSession(ctx, s, wire.OpenSession{Kind: wire.SessionPy, Workspace: dir, Python: python}); err != nil {
			return nil, err
		}
		took, _, err := i.cell(ctx, s, "c", wire.Cursor{})
		if err != nil {
			return nil, err
		}
		if n > 0 { // the first one writes the bytecode
			cold = append(cold, took)
		}
		if _, err := i.client.CloseSession(ctx, s); err != nil {
			return nil, err
		}
	}
	lines = append(lines, millis("kernel_cold_p50", median(cold), coldRuns, fs))
	if _, err := i.client.OpenSession(ctx, "warm", wire.OpenSession{Kind: wire.SessionPy, Workspace: dir, Python: python}); err != nil {
		return nil, err
	}
	var warm []time.Duration
	var at wire.Cursor
	for n := range warmRuns + 1 {
		var took time.Duration
		if took, at, err = i.cell(ctx, "warm", fmt.Sprint("c", n), at); err != nil {
			return nil, err
		}
		if n > 0 {
			warm = append(warm, took)
		}
	}
	lines = append(lines, millis("cell_commit_p50", median(warm), warmRuns, fs))
	ticks, err := i.idle(ctx)
	return append(lines, measure.Line{Name: "idle_ticks", Value: float64(ticks), Unit: "ticks in 20 s", N: 1, FS: fs}), err
}

// cell runs 1+1 and returns the time between its two turns, and the cursor behind them.
func (i *instance) cell(ctx context.Context, session, id string, after wire.Cursor) (time.Duration, wire.Cursor, error) {
	if _, err := i.client.RunCell(ctx, session, id, wire.RunCell{Code: "1+1"}); err != nil {
		return 0, after, err
	}
	began, ended, cursor, err := i.cellTimes(ctx, session, after)
	return ended.Sub(began), cursor, err
}

// cellTimes follows the session from after until a cell has ended.
func (i *instance) cellTimes(ctx context.Context, session string, after wire.Cursor) (began, ended time.Time, cursor wire.Cursor, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	_, err = i.client.Follow(ctx, session, after, func(f client.Frame) error {
		switch {
		case f.Event == nil:
		case f.Event.Kind == wire.CellStarted:
			began = f.Event.At
		case f.Event.Kind == wire.CellEnded:
			ended, cursor = f.Event.At, f.Cursor
			return client.ErrEnough
		}
		return nil
	})
	return began, ended, cursor, err
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
