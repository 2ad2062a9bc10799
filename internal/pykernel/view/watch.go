package view

import (
	"context"
	"sync"

	"soma/internal/neuron"
	"soma/internal/pykernel"
)

// watch is one listener to what happens to the python kernel of a branch, whichever that is.
type watch struct {
	branch  string
	changed func()

	mu   sync.Mutex
	stop func() // listening to the kernel of now; nil while there is none
	over bool
}

// to listens to a python kernel in place of the one before; as the first one, only where no newer one was there before it.
func (w *watch) to(o Owners, kernel string, first bool) {
	stop := o.Watch(kernel, w.changed)
	w.mu.Lock()
	if !w.over && !(first && w.stop != nil) {
		stop, w.stop = w.stop, stop
	}
	w.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// WatchKernel calls changed, which must not block, after each change of what Kernel would return, until end is called. The
// error is that of Kernel.
func (v *View) WatchKernel(ctx context.Context, branch string, changed func()) (end func(), err error) {
	w := &watch{branch: branch, changed: changed}
	v.mu.Lock()
	v.watch[w] = true
	v.mu.Unlock()
	end = func() {
		v.mu.Lock()
		delete(v.watch, w)
		v.mu.Unlock()
		w.mu.Lock()
		stop := w.stop
		w.stop, w.over = nil, true
		w.mu.Unlock()
		if stop != nil {
			stop()
		}
	}
	r, err := v.current(ctx, branch)
	if err != nil {
		end()
		return nil, err
	}
	if r != nil {
		w.to(v.o.Owners, r.ID, true)
	}
	return end, nil
}

// Committed takes the write operations of one commit: those who listen to a branch hear of its kernels that begin and end. It
// does not block.
func (v *View) Committed(ops []neuron.Op) {
	v.mu.Lock()
	idle := len(v.watch) == 0
	v.mu.Unlock()
	if idle {
		return
	}
	for _, op := range ops {
		switch op := op.(type) {
		case *pykernel.InsertKernel:
			branch := op.Branch.String()
			for _, w := range v.listeners(func(w *watch) bool { return w.branch == branch }) {
				w.to(v.o.Owners, op.ID, false)
				w.changed()
			}
		case *pykernel.EndKernel, *pykernel.EvictKernel, *pykernel.EndedKernel:
			for _, w := range v.listeners(func(*watch) bool { return true }) {
				w.changed() // they look, and find that it was another one
			}
		}
	}
}

func (v *View) listeners(which func(*watch) bool) (list []*watch) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for w := range v.watch {
		if which(w) {
			list = append(list, w)
		}
	}
	return list
}
