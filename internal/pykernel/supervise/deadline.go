package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"soma/internal/pykernel"
)

const (
	pongWait     = 300 * time.Millisecond // an interrupt frame that nobody reads (P-202)
	deadlineLate = 2 * time.Second        // the python kernel ends a cell at its deadline by itself; after this the daemon does
	maxTimeout   = time.Hour
)

// cell is one cell that has not ended.
type cell struct {
	id      string
	seq     uint64 // of its execute frame
	timeout time.Duration
	at      time.Time // commit of its frame
	// clock is when the daemon's own deadline began, zero before: the python kernel counts from the start of the cell's
	// code, which the daemon does not see, but a cell that is the first of those open has started.
	clock time.Time
	step  deadlineStep
}

// deadlineStep is how far the daemon has gone against a cell that is past its deadline.
type deadlineStep uint8

const (
	trusted     deadlineStep = iota // the python kernel ends it
	interrupted                     // the daemon has interrupted it
	given                           // the daemon ends the python kernel
)

// probe is an interrupt frame that waits for the pong of the ping behind it.
type probe struct {
	cell string
	ping uint64
	due  time.Time
}

type head struct {
	Type      pykernel.FrameType `json:"type"`
	Cell      string             `json:"cell"`
	Call      string             `json:"call"`
	TimeoutMS int64              `json:"timeout_ms"`
}

// readHead reads what the daemon needs of one of its own frames.
func readHead(body []byte) head {
	var h head
	_ = json.Unmarshal(body, &h) // encoded by NewFrame; one that is not is sent all the same and refused there
	return h
}

// startClock starts the deadline of the first open cell. The caller holds mu.
func (k *kernel) startClock() {
	if len(k.cells) == 0 || k.proc == nil || !k.cells[0].clock.IsZero() {
		return
	}
	k.cells[0].clock = time.Now()
	k.rouse()
}

// probe asks for a pong behind the interrupt frame that was just appended. The caller holds mu.
func (k *kernel) probe(cell string) {
	if k.proc == nil {
		return // it boots: it will read the frame
	}
	k.pings++
	k.probes = append(k.probes, probe{cell, k.pings, time.Now().Add(pongWait)})
	k.link.Ping(k.pings)
	k.rouse()
}

func (k *kernel) rouse() {
	select {
	case k.alarm <- struct{}{}:
	default:
	}
}

// watch takes the steps that are due on a clock; without open cells and probes it has no timer.
func (k *kernel) watch(ctx context.Context) error {
	for {
		var timer *time.Timer
		var due <-chan time.Time
		if next := k.step(ctx); !next.IsZero() {
			timer = time.NewTimer(time.Until(next))
			due = timer.C
		}
		select {
		case <-due:
		case <-k.alarm:
		case <-ctx.Done():
		}
		if timer != nil {
			timer.Stop()
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

// step does what is due and returns when the next thing is, zero for never.
func (k *kernel) step(ctx context.Context) (next time.Time) {
	now := time.Now()
	k.mu.Lock()
	var silent []probe
	k.probes = slices.DeleteFunc(k.probes, func(p probe) bool {
		if p.due.After(now) {
			next = earlier(next, p.due)
			return false
		}
		if slices.ContainsFunc(k.cells, func(c *cell) bool { return c.id == p.cell }) {
			silent = append(silent, p)
		}
		return true
	})
	proc := k.proc
	var late *cell
	if len(k.cells) > 0 && !k.cells[0].clock.IsZero() && k.cells[0].step != given {
		c := k.cells[0]
		if due := c.clock.Add(min(c.timeout, maxTimeout) + deadlineLate*time.Duration(1+c.step)); due.After(now) {
			next = earlier(next, due)
		} else {
			c.step++
			late = c
		}
	}
	k.mu.Unlock()

	for _, p := range silent {
		if err := k.interruptBySignal(proc, p.cell); err != nil {
			k.log().Warn("cannot interrupt a cell by signal", "cell", p.cell, "err", err)
		}
	}
	if late == nil {
		return next
	}
	if late.step == interrupted {
		k.log().Warn("cell is past its deadline", "cell", late.id, "timeout", late.timeout)
		k.interrupt(ctx, late.id)
	} else {
		k.end(fmt.Sprintf("cell %s did not stop at its deadline of %s", late.id, late.timeout))
	}
	return now // look again at once: more may be due
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// interrupt commits an interrupt frame; the rest of the ladder follows from it. Where nothing can be committed the ladder
// goes on without it.
func (k *kernel) interrupt(ctx context.Context, cell string) {
	ctx, cancel := context.WithTimeout(ctx, deadlineLate/2)
	defer cancel()
	f, err := pykernel.NewFrame(k.id, cell, pykernel.Interrupt{Type: pykernel.FrameInterrupt, Cell: cell}, k.s.opt.Now())
	if err == nil {
		err = k.s.opt.Neurons.Write(ctx, k.place, f)
	}
	if err == nil || errors.Is(err, pykernel.ErrKernelEnded) {
		return
	}
	k.log().Warn("cannot commit an interrupt", "cell", cell, "err", err)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.probe(cell)
}

// interruptBySignal is step 3 of the ladder: the cell's id in a file, and SIGINT to the process.
func (k *kernel) interruptBySignal(p *osProcess, cell string) error {
	if p == nil || p.gone() {
		return errProcessGone
	}
	path := filepath.Join(k.dir, "interrupt")
	if err := os.WriteFile(path+".new", []byte(cell), 0o600); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	return p.signal(unix.SIGINT)
}
