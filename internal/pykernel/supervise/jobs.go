package supervise

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"soma/ident"
	"soma/internal/crash"
	"soma/internal/neuron"
	"soma/internal/pykernel"
	"soma/internal/pykernel/frame"
)

// The methods of this file keep what a python kernel says of its jobs. It counts as soon as it is heard: the groups of jobs are
// ended with their python kernel whether or not their rows were committed.

// Bounds of what a python kernel may tell of its jobs.
const (
	maxJobs = 4096 // that run at once; more are only found by their mark
	maxName = 128  // bytes of the id of a job or cell
)

// named reports whether an id may be kept.
func named(id string) bool { return 0 < len(id) && len(id) <= maxName }

// jobStarted takes a job that runs. Repeats change nothing.
func (k *kernel) jobStarted(seq uint64, j *pykernel.JobStart) {
	k.mu.Lock()
	_, known := k.jobs[j.Job]
	if !named(j.Job) || len(j.Cell) > maxName || !known && len(k.jobs) >= maxJobs {
		k.mu.Unlock()
		k.log().Warn("a job of a python kernel is not recorded: there are too many, or its id is too long", "jobs", maxJobs)
		k.link.Settle(seq)
		return
	}
	k.jobs[j.Job] = kept(*j)
	delete(k.missing, j.Job)
	k.mu.Unlock()
	k.publish()
	k.work.add(func(ctx context.Context) {
		crash.Point(crash.JobBeforeCommit)
		if k.write(ctx, "a job", &pykernel.InsertJob{Kernel: k.id, Session: k.session, Job: kept(*j)}) {
			crash.Point(crash.JobCommitted)
			k.link.Settle(seq)
		}
	})
}

// kept is what is remembered of a job.
func kept(j pykernel.JobStart) pykernel.JobStart {
	j.Command = pykernel.Cut(j.Command, pykernel.MaxCommand)
	if _, err := strconv.ParseUint(j.Leader, 10, 64); err != nil {
		j.Leader = "" // no start time: it is nobody's
	}
	return j
}

// jobEnded takes the end of a job. The owner is told of each: it may wait for nothing else any more.
func (k *kernel) jobEnded(seq uint64, e *pykernel.JobEnd) {
	if !named(e.Job) || len(e.Cell) > maxName {
		k.link.Settle(seq)
		return
	}
	k.mu.Lock()
	start, ok := k.jobs[e.Job]
	if !ok {
		start = k.missing[e.Job]
	}
	delete(k.jobs, e.Job)
	delete(k.missing, e.Job)
	k.mu.Unlock()
	k.publish()
	k.s.changed() // it may be idle
	end := *e
	end.Command = pykernel.Cut(e.Command, pykernel.MaxCommand)
	k.work.add(func(ctx context.Context) {
		if k.endJob(ctx, seq, end, start) {
			crash.Point(crash.JobEndCommitted)
			k.link.Settle(seq)
		}
	})
}

// endJob commits the end of a job, with what its owner is to know of it; false: ctx ended first.
func (k *kernel) endJob(ctx context.Context, seq uint64, e pykernel.JobEnd, start pykernel.JobStart) bool {
	row := []neuron.Op{&pykernel.EndJob{Kernel: k.id, Session: k.session, Job: e}, &pykernel.TrimJobs{Kernel: k.id}}
	item := pykernel.EndItem(e.Job)
	if k.known(item, seq) {
		return true
	}
	m := pykernel.JobEnded{
		Kernel: k.id, Job: e.Job, Cell: e.Cell, Command: e.Command, ExitCode: e.ExitCode, TimedOut: e.TimedOut, Bytes: e.Bytes,
		Service: e.Service, Wake: e.Wake, Tail: lastOf(e.Tail, pykernel.MaxJobTail),
	}
	if start.StartedAt > 0 && e.EndedAt > start.StartedAt {
		m.DurationMS = e.EndedAt - start.StartedAt
	}
	return k.tellOwner(ctx, "the end of a job", ident.Named(k.id, "job:"+e.Job), pykernel.Cause{}, pykernel.JobEndedAlias, m, seq, item, row...)
}

// reconcile takes the list of jobs of a hello: what runs is what it says. The end of one that is recorded and not in it is still
// to come, or was lost.
func (k *kernel) reconcile(h *frame.Hello) {
	k.mu.Lock()
	live := make(map[string]pykernel.JobStart, len(h.Jobs))
	var unrecorded []pykernel.JobStart
	for _, j := range h.Jobs {
		if !named(j.Job) || len(j.Cell) > maxName || len(live) == maxJobs {
			continue
		}
		j = kept(j)
		live[j.Job] = j
		if _, ok := k.jobs[j.Job]; !ok {
			unrecorded = append(unrecorded, j)
		}
	}
	for id, j := range k.jobs {
		if _, ok := live[id]; !ok {
			k.missing[id] = j
		}
	}
	k.jobs, k.jobsKnown = live, true
	k.external = pykernel.Jobs{Live: h.External, Awaited: h.AwaitedExternal, Items: shortened(h.ExternalJobs)}
	k.mu.Unlock()
	for _, j := range unrecorded {
		k.work.add(func(ctx context.Context) {
			k.write(ctx, "a job", &pykernel.InsertJob{Kernel: k.id, Session: k.session, Job: j})
		})
	}
}

func shortened(items []pykernel.JobItem) (short []pykernel.JobItem) {
	for _, item := range items {
		if len(short) < pykernel.MaxObserved && named(item.ID) {
			item.Command = pykernel.Cut(item.Command, pykernel.MaxCommand)
			short = append(short, item)
		}
	}
	return short
}

// loseMissing ends the rows of jobs whose end should have come by now: all that an earlier daemon has not acknowledged has come
// again.
func (k *kernel) loseMissing(ctx context.Context) {
	k.mu.Lock()
	var ops []neuron.Op
	for id := range k.missing {
		ops = append(ops, &pykernel.LoseJob{Kernel: k.id, Job: id, At: k.s.opt.Now()})
		delete(k.missing, id)
	}
	k.mu.Unlock()
	if len(ops) > 0 {
		k.write(ctx, "jobs whose end nobody has seen", ops...)
	}
}

// elsewhere takes the jobs that are no processes of this machine.
func (k *kernel) elsewhere(j *pykernel.Jobs) {
	k.mu.Lock()
	k.external = pykernel.Jobs{Live: j.Live, Awaited: j.Awaited, Items: shortened(j.Items)}
	k.mu.Unlock()
	k.publish()
	k.s.changed()
}

// groupOf is the process group of a job, for who ends it; false where ending it would end something else or nobody knows whose
// it is.
func (k *kernel) groupOf(j pykernel.JobStart) (group, bool) {
	own := k.proc != nil && j.PGID == k.proc.pgid
	return group{j.PGID, j.Leader}, j.PGID > 1 && j.Leader != "" && j.PGID != unix.Getpgrp() && !own
}

// jobGroups are the groups of all jobs that may run. The caller holds mu.
func (k *kernel) jobGroups() (groups []group) {
	for _, jobs := range []map[string]pykernel.JobStart{k.jobs, k.missing} {
		for _, j := range jobs {
			if g, ok := k.groupOf(j); ok {
				groups = append(groups, g)
			}
		}
	}
	return groups
}

// stopped lists the jobs that end with the python kernel, by id. The caller holds mu.
func (k *kernel) stopped() []pykernel.Job {
	jobs := k.observe().Jobs
	if !k.jobsKnown {
		for id, j := range k.jobs {
			jobs = append(jobs, pykernel.Job{ID: id, PID: j.PID, Command: j.Command, Service: j.Service, Cell: j.Cell, StartedAt: j.StartedAt})
		}
		slices.SortFunc(jobs, func(a, b pykernel.Job) int { return strings.Compare(a.ID, b.ID) })
		jobs = jobs[:min(len(jobs), pykernel.MaxObserved)]
	}
	return jobs
}
