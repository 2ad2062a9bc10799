package supervise

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"soma/internal/crash"
	"soma/internal/osproc"
	"soma/internal/pykernel"
	"soma/internal/pykernel/frame"
)

// The methods of this file are the kernel's side of its link; link.Handler says when they are called.

// deafWait bounds how long a living process without open cells may owe its hello: it holds one of the MaxLive places.
const deafWait = 2 * time.Minute

// errDeaf: the process lives, has no cell and does not answer.
var errDeaf = fmt.Errorf("it has no cell and has not answered for %s", deafWait)

// Waiting looks at a python kernel that owes its hello: one that computes is waited for without spending a try, up to
// deafWait where it has no cell; open cells have deadlines.
func (k *kernel) Waiting() error {
	p := k.process()
	switch {
	case p.Gone():
		return osproc.ErrGone
	case p.Stopped():
		return errors.New("the process is stopped")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch now := time.Now(); {
	case len(k.cells) > 0:
		k.deaf = time.Time{}
	case k.deaf.IsZero():
		k.deaf = now
	case now.Sub(k.deaf) >= deafWait:
		return errDeaf
	}
	return nil
}

// Hello takes the identity of the process. It returns once the row says that frames may have been written.
func (k *kernel) Hello(ctx context.Context, h frame.Hello) error {
	k.mu.Lock()
	k.deaf, k.runs = time.Time{}, h.Bundle
	k.mu.Unlock()
	p := k.process()
	if h.PID != p.PID || h.Leader != p.Leader {
		return fmt.Errorf("hello of pid %d, expected %d: %w", h.PID, p.PID, osproc.ErrGone)
	}
	if h.Dropped > 0 {
		k.log().Warn("python kernel has dropped frames", "frames", h.Dropped)
	}
	select {
	case <-k.noted: // by an earlier connection or daemon
		k.note(p, h.Epoch, h.Bundle)
	default:
		select {
		case <-k.noted:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	k.reconcile(&h)
	k.enter(attached)
	k.s.changed() // it may be idle
	return nil
}

// Acked collects the rows of acknowledged frames; that of an execute frame stays until its cell has ended.
func (k *kernel) Acked(seqs []uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, seq := range seqs {
		if !slices.ContainsFunc(k.cells, func(c *cell) bool { return c.seq == seq }) {
			k.acked = append(k.acked, seq)
		}
	}
}

// Evidence says that inbox rows up to seq have done their work.
func (k *kernel) Evidence(seq uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.proven = max(k.proven, seq)
}

// Output passes live output on.
func (k *kernel) Output(cell string, offset int64, text string) {
	crash.Point(crash.CellMid)
	k.begunBy(cell)
	if k.s.opt.Output != nil {
		k.s.opt.Output(k.id, cell, offset, text)
	}
}

// Pong ends the probes that it answers. The first one of a connection comes behind all that is sent again: what an earlier daemon
// has not acknowledged, too.
func (k *kernel) Pong(n uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.probes = slices.DeleteFunc(k.probes, func(p probe) bool { return p.ping <= n })
	if k.settled != 0 && k.settled <= n {
		k.settled, k.resent = 0, true
		k.work.add(k.loseMissing)
	}
}

// Frame takes a frame of the python kernel.
func (k *kernel) Frame(seq uint64, f *frame.Frame) {
	switch f.Type {
	case pykernel.FrameDone:
		crash.Point(crash.DoneRead)
		k.work.add(func(ctx context.Context) { k.done(ctx, seq, f.Done) })
	case pykernel.FrameCall:
		k.work.add(func(ctx context.Context) { k.called(ctx, seq, f.Call) })
	case pykernel.FrameStartupError:
		k.mu.Lock()
		k.failed = true
		k.mu.Unlock()
		k.link.Settle(seq)
		k.end("python exited at startup: " + lastBytes(f.Failure))
	case pykernel.FrameBackgrounded:
		k.work.add(func(ctx context.Context) { k.backgrounded(ctx, seq, f.Backgrounded) })
	case pykernel.FrameJobStart:
		k.jobStarted(seq, f.JobStart)
	case pykernel.FrameJob:
		k.jobEnded(seq, f.Job)
	case pykernel.FrameJobs:
		k.elsewhere(f.Jobs)
		k.link.Settle(seq)
	case pykernel.FrameSeen:
		k.work.add(func(ctx context.Context) { k.read(ctx, seq, f.Seen) })
	case pykernel.FrameTrace:
		k.work.add(func(ctx context.Context) { k.traced(ctx, seq, f.Trace) })
	case pykernel.FrameCleanup:
		for _, text := range f.Cleanup.Errors[:min(len(f.Cleanup.Errors), maxCleanup)] {
			k.log().Warn("a binding could not clean up", "error", firstBytes(text, logTail))
		}
		k.link.Settle(seq)
	case pykernel.FrameCells:
		k.mu.Lock()
		k.eligible = f.Cells.Eligible
		k.mu.Unlock()
		k.publish()
		k.link.Settle(seq)
	default: // ready says nothing that has to be kept, an answer nothing that outlives who waits for it
		if f.Answer != nil {
			k.answered(f.Answer)
		}
		k.link.Settle(seq)
	}
}

// maxCleanup bounds the lines of the log that the end of one python kernel may write.
const maxCleanup = 20
