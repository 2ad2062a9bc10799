package pykernel

import (
	"time"

	"soma/ident"
)

// JobState says where a job is in its row.
type JobState string

// The states of a job. A lost one ended with its python kernel: how is not known.
const (
	JobRunning JobState = "running"
	JobExited  JobState = "exited"
	JobLost    JobState = "lost"
)

// KeptJobs bounds the rows of ended jobs of one python kernel.
const KeptJobs = 256

// InsertJob is the row of a job that runs. Repeats change nothing.
type InsertJob struct {
	Kernel, Session string
	Job             JobStart
}

// SQL returns the statement.
func (*InsertJob) SQL() string {
	return `insert into job (kernel, id, session, cell, command, pid, pgid, leader, service, state, exit_code, timed_out, bytes, started_at, ended_at)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, 'running', null, 0, 0, ?, null) on conflict do nothing`
}

// Args returns the column values.
func (j *InsertJob) Args() []any {
	s := j.Job
	return []any{
		j.Kernel, s.Job, j.Session, s.Cell, s.Command, int64(s.PID), int64(s.PGID), s.Leader, number(s.Service), s.StartedAt * 1000,
	}
}

// EndJob records how a job ended; it makes the row where there is none. Repeats change nothing.
type EndJob struct {
	Kernel, Session string
	Job             JobEnd
}

// SQL returns the statement.
func (*EndJob) SQL() string {
	return `insert into job (kernel, id, session, cell, command, pid, pgid, leader, service, state, exit_code, timed_out, bytes, started_at, ended_at)
values (?, ?, ?, ?, ?, 0, 0, '', ?, 'exited', ?, ?, ?, 0, ?)
on conflict (kernel, id) do update set state = excluded.state, exit_code = excluded.exit_code, timed_out = excluded.timed_out,
bytes = excluded.bytes, ended_at = excluded.ended_at where job.state = 'running'`
}

// Args returns the column values.
func (j *EndJob) Args() []any {
	e := j.Job
	var code any
	if e.ExitCode != nil {
		code = int64(*e.ExitCode)
	}
	return []any{
		j.Kernel, e.Job, j.Session, e.Cell, e.Command, number(e.Service), code, number(e.TimedOut), e.Bytes, e.EndedAt * 1000,
	}
}

// TrimJobs deletes the oldest rows of ended jobs beyond KeptJobs.
type TrimJobs struct{ Kernel string }

// SQL returns the statement.
func (*TrimJobs) SQL() string {
	return `delete from job where kernel = ? and state <> 'running' and (ended_at, id) <=
(select ended_at, id from job where kernel = ? and state <> 'running' order by ended_at desc, id desc limit 1 offset ?)`
}

// Args returns the column values.
func (j *TrimJobs) Args() []any { return []any{j.Kernel, j.Kernel, int64(KeptJobs)} }

// LoseJob records that a running job has ended in a way that nobody saw.
type LoseJob struct {
	Kernel, Job string
	At          time.Time
}

// SQL returns the statement.
func (*LoseJob) SQL() string {
	return `update job set state = 'lost', ended_at = ? where kernel = ? and id = ? and state = 'running'`
}

// Args returns the column values.
func (j *LoseJob) Args() []any { return []any{j.At.UnixMicro(), j.Kernel, j.Job} }

// LoseJobs records that all running jobs ended with their python kernel.
type LoseJobs struct {
	Kernel string
	At     time.Time
}

// SQL returns the statement.
func (*LoseJobs) SQL() string {
	return `update job set state = 'lost', ended_at = ? where kernel = ? and state = 'running'`
}

// Args returns the column values.
func (j *LoseJobs) Args() []any { return []any{j.At.UnixMicro(), j.Kernel} }

// InsertTrace stores the files that a cell has changed, as JSON; a newer trace of the cell replaces it, where it comes from the same
// python kernel.
type InsertTrace struct {
	Cell, Session, Kernel string
	Body                  []byte
	At                    time.Time
}

// SQL returns the statement.
func (*InsertTrace) SQL() string {
	return `insert into cell_trace (cell, session, kernel, body, at) values (?, ?, ?, ?, ?)
on conflict (cell) do update set body = excluded.body, at = excluded.at where cell_trace.kernel = excluded.kernel`
}

// Args returns the column values.
func (t *InsertTrace) Args() []any {
	return []any{t.Cell, t.Session, t.Kernel, t.Body, t.At.UnixMicro()}
}

// KeepImage stores an image that a cell has shown. Its id is that of ImageID.
type KeepImage = KeepOutput

// ImageID returns the id of the content that holds a cell's image, the first being 0.
func ImageID(cell ident.ID, index int) ident.ID {
	return ident.Derive(cell, "image:"+string(rune('0'+index)))
}

func number(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
