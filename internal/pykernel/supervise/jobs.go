package supervise

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"soma/ident"
	"soma/internal/crash"
	"soma/internal/neuron"
	"soma/internal/osproc"
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
		said := k.crowded
		k.crowded = true
		k.mu.Unlock()
		if !said {
			k.log().Warn("a job of a python kernel is not recorded: there are too many, or its id is too long", "jobs", maxJobs)
		}
		k.link.Settle(seq)
		return
	}
	k.jobs[j.Job] = kept(*j)
	k.starts = append(k.starts, jobStart{seq, k.jobs[j.Job]})
	delete(k.missing, j.Job)
	k.mu.Unlock()
	k.begunBy(j.Cell)
	k.publish()
	k.work.add(k.recordStarts)
}

// jobStart is a job that has begun, with the number of the frame that told it.
type jobStart struct {
	seq uint64
	job pykernel.JobStart
}

// recordStarts makes the rows of jobs that have begun, of many in one commit where they came faster than that.
func (k *kernel) recordStarts(ctx context.Context) {
	k.mu.Lock()
	some := slices.Clone(k.starts[:min(len(k.starts), maxRiders)])
	k.starts = k.starts[len(some):]
	k.mu.Unlock()
	if len(some) == 0 {
		return
	}
	ops := make([]neuron.Op, len(some))
	for i, s := range some {
		ops[i] = &pykernel.InsertJob{Kernel: k.id, Session: k.session, Job: s.job}
	}
	crash.Point(crash.JobBeforeCommit)
	if !k.write(ctx, "jobs", ops...) {
		return
	}
	crash.Point(crash.JobCommitted)
	for _, s := range some {
		k.link.Settle(s.seq)
	}
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
	return k.tellOwner(ctx, "the end of a job", endID(k.id, e.Job), pykernel.Cause{}, pykernel.JobEndedAlias, m, seq, item, row...)
}

// reconcile takes the lists of a hello: what runs is what it says. The end of a job that is recorded and not in it is still to
// come, or was lost; so is, where frames were dropped, the outcome of a cell that has ended.
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
	k.dropped = nil
	if h.Dropped > 0 {
		for _, c := range k.cells {
			if c.seq <= h.Ack && !slices.Contains(h.Cells, c.id) {
				k.dropped = append(k.dropped, c)
			}
		}
	}
	k.pings++
	k.settled = k.pings
	k.link.Ping(k.pings)
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

// loseMissing ends the jobs and cells whose end should have come by now, because all that was not acknowledged has come again:
// nobody knows how they ended, and who waits for them hears that.
func (k *kernel) loseMissing(ctx context.Context) {
	k.mu.Lock()
	lost, dropped := maps.Clone(k.missing), k.dropped
	k.dropped = nil
	k.mu.Unlock()
	for _, c := range dropped {
		out := pykernel.CellEnded{Kernel: k.id, Cell: c.id, Status: pykernel.CellUnknown, Background: c.background, Wake: c.background,
			Note: "result unknown: the cell has ended, but its python kernel had to drop the result while no daemon took it"}
		if k.open(c.id) == c && !k.ended(ctx, c, out, pykernel.Output{}, nil) {
			return
		}
	}
	for id, j := range lost {
		now := k.s.opt.Now()
		m := pykernel.JobEnded{Kernel: k.id, Job: id, Cell: j.Cell, Command: j.Command, Service: j.Service, Wake: !j.Service}
		if j.StartedAt > 0 {
			m.DurationMS = max(now.UnixMilli()-j.StartedAt, 0)
		}
		if !k.persist(ctx, "that nobody has seen the end of a job", func(ctx context.Context) error {
			return k.deliver(ctx, endID(k.id, id), pykernel.Cause{}, pykernel.JobEndedAlias, m,
				[]neuron.Op{&pykernel.LoseJob{Kernel: k.id, Job: id, At: now}})
		}) {
			return
		}
		k.mu.Lock()
		delete(k.missing, id)
		k.mu.Unlock()
	}
}

// endID is the delivery that tells of the end of a job.
func endID(kernel, job string) ident.ID { return ident.Named(kernel, "job:"+job) }

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
func (k *kernel) groupOf(j pykernel.JobStart) (osproc.Group, bool) {
	own := k.proc != nil && j.PGID == k.proc.PGID
	return osproc.Group{PGID: j.PGID, Leader: j.Leader}, j.PGID > 1 && j.Leader != "" && j.PGID != unix.Getpgrp() && !own
}

// jobGroups are the groups of all jobs that may run. The caller holds mu.
func (k *kernel) jobGroups() (groups []osproc.Group) {
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
	unseen := k.missing
	if !k.jobsKnown {
		unseen = k.jobs
	}
	for id, j := range unseen {
		jobs = append(jobs, pykernel.Job{ID: id, PID: j.PID, Command: j.Command, Service: j.Service, Cell: j.Cell, StartedAt: j.StartedAt})
	}
	slices.SortFunc(jobs, func(a, b pykernel.Job) int { return strings.Compare(a.ID, b.ID) })
	return jobs[:min(len(jobs), pykernel.MaxObserved)]
}
