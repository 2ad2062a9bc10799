package supervise

import (
	"context"
	"os"
	"path/filepath"
	"slices"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/osproc"
	"soma/internal/pykernel"
)

// marker is what the environment of a python kernel holds, and of all that it starts.
func marker(kernel string) string { return pykernel.Mark + "=" + kernel }

// bury ends what is left of a python kernel and tells its owner: no more frames, no process, every open cell with what is
// known of it, then Gone. Where ctx ends first the next daemon does the rest.
func (k *kernel) bury(ctx context.Context, reason string) {
	if !k.persist(ctx, "the end of a python kernel", func(ctx context.Context) error {
		return k.s.opt.Neurons.Write(ctx, k.place, &pykernel.EndKernel{ID: k.id, Reason: reason})
	}) {
		return
	}
	// From here no frame is appended: the commit's hook has come by all earlier ones.
	k.mu.Lock()
	var groups []osproc.Group
	if k.lost.PGID > 0 {
		groups = append(groups, k.lost)
	}
	for _, p := range k.procs {
		groups = append(groups, p.Group())
	}
	groups = append(groups, k.jobGroups()...)
	k.mu.Unlock()
	if k.foreign { // its own node ends what is left of it there
		k.tell(ctx, reason)
		return
	}
	if pid, err := osproc.LockHolder(filepath.Join(k.dir, "lock")); err == nil && pid > 0 { // one that an earlier daemon started
		if p, err := osproc.Open(pid, ""); err == nil {
			groups = append(groups, p.Group())
			p.Close()
		}
	}
	if err := osproc.EndGroups(ctx, groups); err != nil && ctx.Err() == nil {
		k.log().Error("python kernel has left processes", "err", err)
	}
	if err := osproc.EndMarked(ctx, marker(k.id)); err != nil && ctx.Err() == nil {
		k.log().Error("python kernel has left processes", "err", err)
	}
	k.s.release(k)
	k.work.drain(ctx)
	if !k.tell(ctx, reason) {
		return
	}
	if err := os.RemoveAll(k.dir); err != nil {
		k.log().Warn("cannot remove the run directory", "err", err)
	}
	k.log().Info("python kernel is gone", "reason", reason)
}

// tell ends the open cells with what is known of them, and lets the owner know that the python kernel is gone.
func (k *kernel) tell(ctx context.Context, reason string) bool {
	k.mu.Lock()
	cells := slices.Clone(k.cells)
	failed := k.failed
	gone := pykernel.Gone{Kernel: k.id, Reason: reason, Jobs: k.stopped()}
	k.mu.Unlock()
	for _, c := range cells {
		if !k.ended(ctx, c, k.fate(c, failed, reason), pykernel.Output{}, nil) {
			return false
		}
	}
	return k.persist(ctx, "that a python kernel is gone", func(ctx context.Context) error {
		now := k.s.opt.Now()
		ops := []neuron.Op{&pykernel.EndedKernel{ID: k.id, Reason: reason, At: now}, &pykernel.LoseJobs{Kernel: k.id, At: now}}
		for _, op := range pykernel.ClearKernel(k.id) {
			ops = append(ops, op)
		}
		return k.deliver(ctx, ident.Derive(k.ident, "gone"), pykernel.Cause{}, pykernel.GoneAlias, gone, ops)
	})
}

// fate is what can be said of a cell whose python kernel is gone.
func (k *kernel) fate(c *cell, failed bool, reason string) pykernel.CellEnded {
	out := pykernel.CellEnded{Kernel: k.id, Cell: c.id, Background: c.background, Wake: c.background}
	switch {
	case c.step == given:
		out.Status, out.Note = pykernel.CellTimedOut, "the cell did not stop at its deadline, so its python kernel was ended: "+reason
		out.DurationMS = k.s.opt.Now().Sub(c.at).Milliseconds()
	case c.step == unheard:
		out.Status, out.Note = pykernel.CellInterrupted, "the cell did not stop when it was interrupted, so its python kernel was ended: "+reason
		out.DurationMS = k.s.opt.Now().Sub(c.at).Milliseconds()
	case failed || !k.link.Written(c.seq):
		out.Status, out.Note = pykernel.CellNotStarted, "not started: "+reason
	default:
		out.Status, out.Note = pykernel.CellUnknown, "result unknown: the python kernel ended ("+reason+")"
	}
	return out
}
