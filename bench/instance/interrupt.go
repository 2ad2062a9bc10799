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
	all, err := i.interrupts(ctx, dir)
	if err != nil {
		return line, err
	}
	slices.Sort(all)
	return millis("interrupt_p95", all[len(all)*95/100], len(all), fs), nil
}

func (i *instance) interrupts(ctx context.Context, dir string) (all []time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	const session = "interrupt"
	if _, err := i.client.OpenSession(ctx, session, wire.OpenSession{Kind: wire.SessionPy, Workspace: dir, Python: python}); err != nil {
		return nil, err
	}
	// One follower from before the first cell on: what a cell shows while it runs does not come again.
	began, ended, lost := make(chan string), make(chan wire.Cell), make(chan error, 1)
	go func() {
		_, err := i.client.Follow(ctx, session, wire.Cursor{}, func(f client.Frame) error {
			switch {
			case f.Output != nil:
				began <- f.Output.Cell
			case f.Event != nil && f.Event.Kind == wire.SessionOpened:
				began <- ""
			case f.Event != nil && f.Event.Kind == wire.CellEnded:
				var b wire.CellEvent
				if err := json.Unmarshal(f.Event.Body, &b); err != nil {
					return err
				}
				ended <- b.Cell
			}
			return nil
		})
		lost <- err
	}()
	<-began
	for n := range interruptRuns {
		for _, h := range held {
			took, err := i.interrupted(ctx, session, fmt.Sprintf("%d-%s", n, strings.ReplaceAll(h.name, " ", "-")), h.code, began, ended)
			if err != nil {
				select {
				case gone := <-lost:
					err = errors.Join(err, gone)
				default:
				}
				return nil, fmt.Errorf("%s: %w", h.name, err)
			}
			all = append(all, took)
		}
	}
	return all, nil
}

// interrupted runs code until it shows that it has begun, and returns how long its interrupt took.
func (i *instance) interrupted(ctx context.Context, session, id, code string, began <-chan string, ended <-chan wire.Cell) (time.Duration, error) {
	cell, err := i.client.RunCell(ctx, session, id, wire.RunCell{Code: "print('begun', flush=True)\n" + code})
	if err != nil {
		return 0, err
	}
	for {
		select {
		case shown := <-began:
			if shown == cell.ID {
				return i.interrupt(ctx, cell.ID, ended)
			}
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

func (i *instance) interrupt(ctx context.Context, cell string, ended <-chan wire.Cell) (time.Duration, error) {
	asked := time.Now()
	if _, err := i.client.InterruptCell(ctx, cell); err != nil {
		return 0, err
	}
	select {
	case c := <-ended:
		if c.ID != cell || c.Status != "interrupted" {
			return 0, fmt.Errorf("cell %s ended as %s: %v", c.ID, c.Status, c.Error)
		}
		return time.Since(asked), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
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
