package view

import (
	"context"
	"errors"

	"soma/internal/pykernel"
	"soma/wire"
)

// running are jobs as the owner of their kernel sees them, in its order.
func running(jobs []pykernel.Job) []wire.RunningJob {
	list := make([]wire.RunningJob, 0, len(jobs))
	for _, j := range jobs {
		r := wire.RunningJob{ID: j.ID, Command: j.Command, Service: j.Service, Started: j.StartedAt}
		if pid := j.PID; pid != 0 {
			r.PID = &pid
		}
		list = append(list, r)
	}
	return list
}

// Jobs returns the jobs that run in the python kernel of a branch, sorted by id, as its owner sees them, at most wire.MaxRunning. It
// waits as Kernel does.
func (v *View) Jobs(ctx context.Context, branch string) ([]wire.RunningJob, error) {
	r, err := v.current(ctx, branch)
	if err != nil || r == nil {
		return nil, err
	}
	_, seen := v.heard(ctx, *r)
	if seen == nil || seen.Live == nil {
		return nil, unreachable(errors.New("nothing is known of its jobs yet"))
	}
	return running(seen.Jobs), nil
}

// RecentJobs returns the book of jobs that the python kernel of a branch keeps, the newest first, or without a kernel the rows of
// the one before.
func (v *View) RecentJobs(ctx context.Context, branch string) ([]wire.Job, error) {
	r, err := v.current(ctx, branch)
	if err != nil {
		return nil, err
	}
	if r == nil {
		return v.storedJobs(ctx, branch)
	}
	if _, seen := v.observed(*r); seen != nil && seen.Stale { // it may not know what it would be asked
		return nil, nil
	}
	a, err := v.ask(ctx, r.ID, pykernel.Ask{Type: pykernel.FrameJobList})
	if err != nil {
		return nil, err
	}
	var list []wire.Job
	for _, j := range a.Jobs[:min(len(a.Jobs), wire.MaxRecentJobs)] {
		row := wire.Job{ID: j.ID, Command: pykernel.Cut(j.Command, wire.MaxCommand), State: j.State, ExitCode: j.ExitCode, TimedOut: j.TimedOut, Service: j.Service,
			Cell: j.Cell, Started: j.StartedAt, Bytes: j.Bytes}
		if j.EndedAt != nil {
			row.Ended = *j.EndedAt
		}
		list = append(list, row)
	}
	return list, nil
}

const jobColumns = `id, command, state, exit_code, timed_out, service, cell, started_at, coalesce(ended_at, 0), bytes`

func scanJob(fields func(...any) error) (j wire.Job, err error) {
	err = fields(&j.ID, &j.Command, &j.State, &j.ExitCode, &j.TimedOut, &j.Service, &j.Cell, &j.Started, &j.Ended, &j.Bytes)
	j.Started, j.Ended = j.Started/1000, j.Ended/1000
	return j, err
}

// storedJobs reads the rows of the jobs of the newest python kernel of a branch.
func (v *View) storedJobs(ctx context.Context, branch string) (list []wire.Job, err error) {
	id, err := v.branch(ctx, branch)
	if err != nil {
		return nil, err
	}
	rows, err := v.rows(ctx, lastOf, id[:])
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	err = v.o.Reader.Query(ctx, `select `+jobColumns+` from job where kernel = ? order by started_at desc, id desc limit ?`,
		[]any{rows[0].ID, int64(wire.MaxRecentJobs)}, func(fields func(...any) error) error {
			j, err := scanJob(fields)
			list = append(list, j)
			return err
		})
	return list, err
}

// JobOutput returns a page of a job's output, that at the end where offset is nil.
func (v *View) JobOutput(ctx context.Context, branch, job string, offset *int64, limit int64) (wire.JobPage, error) {
	r, err := v.current(ctx, branch)
	if err != nil {
		return wire.JobPage{}, err
	}
	if r == nil {
		return wire.JobPage{}, v.absentJob(ctx, branch, job)
	}
	a, err := v.ask(ctx, r.ID, pykernel.Ask{Type: pykernel.FrameJobRead, Job: job, Offset: offset, Limit: int(limit)})
	var refusal *wire.Error
	if errors.As(err, &refusal) && refusal.Code == wire.JobNotFound {
		return wire.JobPage{}, v.absentJob(ctx, branch, job)
	}
	if err != nil {
		return wire.JobPage{}, err
	}
	p := a.Page
	return wire.JobPage{Job: job, Offset: p.Offset, Next: p.NextOffset, Size: p.Size, Running: p.Running, Text: p.Text}, nil
}

// absentJob says of a job that no living python kernel of a branch knows whether there was one.
func (v *View) absentJob(ctx context.Context, branch, job string) error {
	id, err := v.branch(ctx, branch)
	if err != nil {
		return err
	}
	found := false
	err = v.o.Reader.Query(ctx, `select 1 from job j join kernel k on k.id = j.kernel where k.branch = ? and j.id = ?`, []any{id[:], job},
		func(func(...any) error) error { found = true; return nil })
	if err != nil {
		return err
	}
	if found {
		return wire.Errorf(wire.OutputLost, "the output of job %s is not kept any more", job)
	}
	return noJob(job)
}

func noJob(job string) *wire.Error {
	return wire.Errorf(wire.JobNotFound, "there is no job %s", job).Do("see soma jobs --all")
}

// noneRuns is what is said of a job that cannot be stopped: it may have ended.
func noneRuns(job string) *wire.Error {
	return wire.Errorf(wire.JobNotFound, "no job %s runs", job).Do("see soma jobs --all")
}

// StopJob stops a job of the python kernel of a branch.
func (v *View) StopJob(ctx context.Context, branch, job string) (wire.StoppedJob, error) {
	r, err := v.current(ctx, branch)
	if err != nil {
		return wire.StoppedJob{}, err
	}
	if r == nil {
		return wire.StoppedJob{}, noneRuns(job)
	}
	err = v.o.Owners.StopJob(ctx, r.ID, job)
	switch {
	case err == nil:
		return wire.StoppedJob{Job: job}, nil
	case errors.Is(err, ErrNoJob):
		return wire.StoppedJob{}, noneRuns(job)
	}
	return wire.StoppedJob{}, wire.Errorf(wire.Unconfirmed, "cannot tell whether job %s has ended: %.300v", job, err).
		Do("see soma jobs before trying again")
}
