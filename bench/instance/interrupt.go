package instance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"soma/bench/measure"
	"soma/client"
	"soma/wire"
)

const interruptRuns = 20

// held are the ways in which code keeps a kernel busy and yet lets other threads run.
var held = []struct{ name, code string }{
	{"a loop", "while True: pass"},
	{"await sleep", "await asyncio.sleep(600)"},
	{"gather", "await asyncio.gather(*(asyncio.sleep(600) for _ in range(10)))"},
	{"a job", "await run(['sleep', '600'])"},
	{"sleep", "while True: time.sleep(0.9)"},
	{"a lock", "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()"},
	{"join", "import threading\nhold = threading.Event()\nthreading.Thread(target=hold.wait, daemon=True).start()\nthreading.enumerate()[-1].join()"},
	{"recv", "import socket\na, b = socket.socketpair()\na.recv(1)"},
	{"a queue", "import queue\nqueue.Queue().get()"},
}

// Interrupt returns interrupt_p95: from the request that interrupts a cell to the commit of its end, over all ways of being
// busy that let other threads run.
func Interrupt(ctx context.Context, dir, fs string) (line measure.Line, err error) {
	bin, err := build(ctx, dir)
	if err != nil {
		return line, err
	}
	i, err := open(ctx, bin, dir)
	if err != nil {
		return line, err
	}
	defer func() { err = errors.Join(err, i.close(ctx)) }()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	const session = "interrupt"
	if _, err := i.client.OpenSession(ctx, session, wire.OpenSession{Kind: wire.SessionPy, Workspace: dir, Python: python}); err != nil {
		return line, err
	}
	var all []time.Duration
	var at wire.Cursor
	for n := range interruptRuns {
		for _, h := range held {
			cell, err := i.client.RunCell(ctx, session, fmt.Sprintf("%d-%s", n, strings.ReplaceAll(h.name, " ", "-")),
				wire.RunCell{Code: "print('begun', flush=True)\n" + h.code})
			if err != nil {
				return line, err
			}
			var began time.Time
			ended := wire.Cell{}
			_, err = i.client.Follow(ctx, session, at, func(f client.Frame) error {
				at = f.Cursor
				switch {
				case f.Output != nil && f.Output.Cell == cell.ID && began.IsZero():
					began = time.Now()
					_, err := i.client.InterruptCell(ctx, cell.ID)
					return err
				case f.Event != nil && f.Event.Kind == wire.CellEnded:
					var b wire.CellEvent
					if err := json.Unmarshal(f.Event.Body, &b); err != nil {
						return err
					}
					ended = b.Cell
					all = append(all, time.Since(began))
					return client.ErrEnough
				}
				return nil
			})
			if err != nil {
				return line, fmt.Errorf("%s: %w", h.name, err)
			}
			if ended.Status != "interrupted" {
				return line, fmt.Errorf("%s: the cell ended as %s: %v", h.name, ended.Status, ended.Error)
			}
		}
	}
	slices.Sort(all)
	return millis("interrupt_p95", all[len(all)*95/100], len(all), fs), nil
}

// resident returns the resident memory of a process in MB.
func resident(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		var kb float64
		if _, err := fmt.Sscanf(line, "VmRSS: %f kB", &kb); err == nil {
			return kb / 1000 * 1.024, nil
		}
	}
	return 0, fmt.Errorf("process %d has no VmRSS", pid)
}
