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

	"soma/internal/osproc"
	"soma/internal/pykernel"
)

const (
	pongWait     = 300 * time.Millisecond // an interrupt frame that nobody reads (P-202)
	deadlineLate = 2 * time.Second        // the python kernel ends a cell at its deadline by itself; after this the daemon does
	maxTimeout   = time.Hour

	stopWait = 10 * time.Second // from an interrupt to the end of the python kernel whose cell goes on all the same
	stopGap  = 3 * time.Second  // between two interrupts of it by signal
	again    = " again"         // follows the cell's id in the file of an interrupt that is meant as one more
)

// cell is one cell that has not ended.
type cell struct {
	id      string
	seq     uint64 // of its execute frame
	timeout time.Duration
	at      time.Time // commit of its frame
	cause   pykernel.Cause
	// clock is when the daemon's own deadline began, zero before: the python kernel counts from the start of the cell's
	// code, which the daemon does not see, but a cell that is the first of those open, in the background, or heard of has started.
	clock time.Time
	step  deadlineStep
	// background: its owner was told that it goes on without being waited for, so it has begun.
	background bool

	asked time.Time // the first interrupt, zero before
	next  time.Time // of interrupts by signal, zero before the first
}

// deadlineStep is how far the daemon has gone against a cell that does not end.
type deadlineStep uint8

const (
	trusted     deadlineStep = iota // the python kernel ends it
	interrupted                     // the daemon has interrupted it
	given                           // the daemon ends the python kernel, past the deadline
	unheard                         // the daemon ends it, because the cell goes on after an interrupt
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
	pykernel.Cause
}

// readHead reads what the daemon needs of one of its own frames.
func readHead(body []byte) head {
	var h head
	_ = json.Unmarshal(body, &h) // encoded by NewFrame; one that is not is sent all the same and refused there
	return h
}

// startClock starts the deadlines of the cells that are known to have begun: the first that is open, and those in the background.
// One behind a cell in the background may wait for it all the same. The caller holds mu.
func (k *kernel) startClock() {
	if k.proc == nil {
		return
	}
	for i, c := range k.cells {
		if c.clock.IsZero() && (i == 0 || c.background) {
			c.clock = time.Now()
			k.rouse()
		}
	}
}

// begunBy starts the deadline of a cell of which something has come: it has begun, whatever is before it.
func (k *kernel) begunBy(id string) {
	if id == "" {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.cells {
		if c.id == id && c.clock.IsZero() && k.proc != nil {
			c.clock = time.Now()
			k.rouse()
		}
	}
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
	var deaf []string
	for _, c := range k.cells {
		if c.clock.IsZero() || c.step >= given || late != nil {
			continue
		}
		if !c.asked.IsZero() {
			due, again := c.pursue(now)
			if !due.IsZero() {
				next = earlier(next, due)
			}
			if again != "" {
				deaf = append(deaf, again)
			}
		}
		if c.step == unheard {
			late = c
		} else if due := c.clock.Add(min(c.timeout, maxTimeout) + deadlineLate*time.Duration(1+c.step)); due.After(now) {
			next = earlier(next, due)
		} else {
			c.step++
			late = c
		}
	}
	k.mu.Unlock()

	names := make([]string, 0, len(silent)+len(deaf))
	for _, p := range silent {
		names = append(names, p.cell)
	}
	names = append(names, deaf...)
	for _, name := range names {
		if err := k.interruptBySignal(proc, name); err != nil {
			k.log().Warn("cannot interrupt a cell by signal", "cell", name, "err", err)
		}
	}
	if late == nil {
		return next
	}
	switch late.step {
	case unheard:
		k.end(fmt.Sprintf("cell %s did not stop within %s of its interrupt", late.id, stopWait))
	case interrupted:
		k.log().Warn("cell is past its deadline", "cell", late.id, "timeout", late.timeout)
		k.interrupt(ctx, late.id)
	default:
		k.end(fmt.Sprintf("cell %s did not stop at its deadline of %s", late.id, late.timeout))
	}
	return now // look again at once: more may be due
}

// pursue takes the steps after an interrupt: it comes again by signal every stopGap, and after stopWait the cell is given up.
// It returns when the next step is due, zero for none, and what is to be signalled now, empty for nothing. The waits begin with
// the first interrupt, or later where the cell's turn came later. The caller holds mu.
func (c *cell) pursue(now time.Time) (due time.Time, signal string) {
	since := c.asked
	if c.clock.After(since) {
		since = c.clock
	}
	end := since.Add(stopWait)
	if !end.After(now) {
		c.step = unheard
		return time.Time{}, ""
	}
	if c.next.IsZero() {
		c.next = since.Add(stopGap)
	}
	if !c.next.After(now) {
		c.next, signal = now.Add(stopGap), c.id+again
	}
	return earlier(end, c.next), signal
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

// interruptBySignal is step 3 of the ladder: the cell's id in a file (with again, to be raised once more), and SIGINT to the
// process.
func (k *kernel) interruptBySignal(p *osproc.Process, name string) error {
	if p == nil || p.Gone() {
		return osproc.ErrGone
	}
	path := filepath.Join(k.dir, "interrupt")
	if err := os.WriteFile(path+".new", []byte(name), 0o600); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	return p.Signal(unix.SIGINT)
}
