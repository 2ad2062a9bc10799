package supervise

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"soma/internal/pykernel"
)

// Observe returns what is known of a live python kernel. It never blocks and asks nobody. False: none of that id lives here.
func (s *Supervisor) Observe(kernel string) (pykernel.Observation, bool) {
	k := s.find(kernel)
	if k == nil {
		return pykernel.Observation{}, false
	}
	return *k.seen.Load(), true
}

// Watch calls changed after each change of what Observe returns for a live python kernel, and once more when it is gone; it is
// called by whoever made the change and must not block. stop ends that, and may be called at any time. Of a kernel that does
// not live here changed is never called.
func (s *Supervisor) Watch(kernel string, changed func()) (stop func()) {
	k := s.find(kernel)
	if k == nil {
		return func() {}
	}
	k.watching.Lock()
	defer k.watching.Unlock()
	w := &watcher{changed}
	k.watchers = append(k.watchers, w)
	return func() {
		k.watching.Lock()
		defer k.watching.Unlock()
		k.watchers = slices.DeleteFunc(k.watchers, func(other *watcher) bool { return other == w })
	}
}

// watcher is one call of Watch.
type watcher struct{ changed func() }

// tellWatchers calls all who watch. The caller holds no lock.
func (k *kernel) tellWatchers() {
	k.watching.Lock()
	all := slices.Clone(k.watchers)
	k.watching.Unlock()
	for _, w := range all {
		w.changed()
	}
}

// publish makes what is known of the python kernel visible, and tells who watches it if something of it is new. The caller
// holds no lock.
func (k *kernel) publish() {
	k.mu.Lock()
	now := k.observe()
	old := k.seen.Swap(&now)
	k.mu.Unlock()
	if old == nil || !reflect.DeepEqual(*old, now) {
		k.tellWatchers()
	}
}

// observe puts together what is known. The caller holds mu.
func (k *kernel) observe() pykernel.Observation {
	o := pykernel.Observation{
		Kernel: k.id, Session: k.session, Branch: k.branch, State: string(k.phase), Stale: k.stale(), Eligible: k.eligible,
	}
	if k.proc != nil {
		o.OSPID = k.proc.PID
	}
	for _, c := range k.cells {
		o.Cells = append(o.Cells, c.id)
	}
	if !k.jobsKnown {
		return o
	}
	live := len(k.jobs) + k.external.Live
	o.Live, o.Awaited = &live, k.external.Awaited
	ids := slices.Sorted(maps.Keys(k.jobs))
	for _, id := range ids {
		j := k.jobs[id]
		if !j.Service {
			o.Awaited++
		}
		if len(o.Jobs) < pykernel.MaxObserved {
			o.Jobs = append(o.Jobs, pykernel.Job{
				ID: id, PID: j.PID, Command: j.Command, Service: j.Service, Cell: j.Cell, StartedAt: j.StartedAt,
			})
		}
	}
	for _, j := range k.external.Items {
		o.Jobs = append(o.Jobs, pykernel.Job{ID: j.ID, Command: j.Command, Service: j.Service, StartedAt: j.Started})
	}
	slices.SortFunc(o.Jobs, func(a, b pykernel.Job) int { return strings.Compare(a.ID, b.ID) })
	o.Jobs = o.Jobs[:min(len(o.Jobs), pykernel.MaxObserved)]
	return o
}

// stale reports whether the process runs other sources than this daemon's. One that has not been heard yet is none. The caller
// holds mu.
func (k *kernel) stale() bool {
	return k.runs != "" && (k.runs != k.s.bundle.Digest || k.modules != "" && k.modules != k.s.modules())
}

// modules names the modules that python kernels are started with.
func (s *Supervisor) modules() string { return strings.Join(s.opt.Modules, ",") }
