package instance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"soma/bench/measure"
	"soma/client"
	"soma/wire"
)

// Program returns binary_mb and start: the size of the program and the time that `soma version` takes.
func Program(ctx context.Context, dir, fs string) ([]measure.Line, error) {
	bin, err := build(ctx, dir)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(bin)
	if err != nil {
		return nil, err
	}
	const runs = 50
	start, err := timeRuns(runs, func() *exec.Cmd { return exec.CommandContext(ctx, bin, "version") })
	return []measure.Line{
		{Name: "binary_mb", Value: float64(info.Size()) / 1e6, Unit: "MB", N: 1, FS: fs},
		millis("start", start, runs, fs),
	}, err
}

const (
	tableSize     = 1000
	liveKernels   = 20
	socketClients = 64
)

// Daemon returns the figures of one daemon with 1,000 processes: ps_1000, turns_socket_64 and recover_first_step.
func Daemon(ctx context.Context, dir, fs string) (lines []measure.Line, err error) {
	bin, err := build(ctx, dir)
	if err != nil {
		return nil, err
	}
	i, err := open(ctx, bin, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, i.close(ctx)) }()
	pids, err := i.spawn(ctx, dir)
	if err != nil {
		return nil, err
	}
	const runs = 30
	ps, err := timeRuns(runs, func() *exec.Cmd { return i.command("ps") })
	if err != nil {
		return nil, err
	}
	lines = append(lines, millis("ps_1000", ps, runs, fs))
	socket, err := i.signals(ctx, pids, fs)
	if err != nil {
		return nil, err
	}
	lines = append(lines, socket)
	first, err := i.recover(ctx, dir)
	return append(lines, millis("recover_first_step", first, 1, fs)), err
}

// spawn opens sessions until the table is full and returns the pids.
func (i *instance) spawn(ctx context.Context, dir string) ([]uint64, error) {
	pids := make([]uint64, tableSize)
	errs := make([]error, tableSize)
	var wg sync.WaitGroup
	limit := make(chan struct{}, 64)
	for n := range tableSize {
		limit <- struct{}{}
		wg.Go(func() {
			defer func() { <-limit }()
			var s wire.Session
			s, errs[n] = i.client.OpenSession(ctx, fmt.Sprint("table-", n), wire.OpenSession{Workspace: dir, Model: "script:tour", Keep: true})
			pids[n] = s.PID
		})
	}
	wg.Wait()
	return pids, errors.Join(errs...)
}

// recover kills the daemon while 20 python kernels work and returns the time from the start of the new one's program to
// the first outcome that it commits. The cells end while no daemon runs, so that nothing but the daemon is waited for.
func (i *instance) recover(ctx context.Context, dir string) (time.Duration, error) {
	sessions, err := i.work(ctx, dir)
	if err != nil {
		return 0, err
	}
	i.kill()
	time.Sleep(3 * time.Second)
	began := time.Now()
	if err := i.start(ctx); err != nil {
		return 0, err
	}
	var first time.Time
	for _, s := range sessions {
		at, err := i.ended(ctx, s)
		if err != nil {
			return 0, err
		}
		if first.IsZero() || at.Before(first) {
			first = at
		}
	}
	return first.Sub(began), nil
}

// work starts a cell in each of 20 python kernels and waits until all run.
func (i *instance) work(ctx context.Context, dir string) ([]string, error) {
	var sessions []string
	for n := range liveKernels {
		s := fmt.Sprint("kernel-", n)
		if _, err := i.client.OpenSession(ctx, s, wire.OpenSession{Kind: wire.SessionPy, Workspace: dir, Python: python}); err != nil {
			return nil, err
		}
		code := fmt.Sprintf("import asyncio\nopen(%q, 'w').close()\nawait asyncio.sleep(2)", dir+"/started-"+s)
		if _, err := i.client.RunCell(ctx, s, "c", wire.RunCell{Code: code}); err != nil {
			return nil, err
		}
		sessions = append(sessions, s)
	}
	for _, s := range sessions {
		for {
			if _, err := os.Stat(dir + "/started-" + s); err == nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	return sessions, nil
}

// ended waits for the end of a session's cell and returns when its turn was.
func (i *instance) ended(ctx context.Context, session string) (at time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	_, err = i.client.Follow(ctx, session, wire.Cursor{}, func(f client.Frame) error {
		if f.Event == nil || f.Event.Kind != wire.CellEnded {
			return nil
		}
		at = f.Event.At
		return client.ErrEnough
	})
	return at, err
}

// idleTicks is the CPU time that a daemon with an attached, idle python kernel uses.
func idleTicks(pids ...int) (int, error) {
	total := 0
	for _, pid := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, err
		}
		fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+2:]))
		var user, system int
		if _, err := fmt.Sscan(fields[11], &user); err != nil {
			return 0, err
		}
		if _, err := fmt.Sscan(fields[12], &system); err != nil {
			return 0, err
		}
		total += user + system
	}
	return total, nil
}
