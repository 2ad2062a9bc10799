package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"soma/wire"
)

func branchPath(branch string) string { return "/v1/branches/" + url.PathEscape(branch) }

func jobPath(branch, job string) string {
	return branchPath(branch) + "/jobs/" + url.PathEscape(job)
}

// Kernels returns the python kernels by age, with ended also those that have ended: the newest wire.MaxPyKernels of them. No
// kernel is started by it, nor by any method here.
func (c *Client) Kernels(ctx context.Context, ended bool) ([]wire.PyKernel, error) {
	all := ""
	if ended {
		all = "true"
	}
	var l wire.List[wire.PyKernel]
	return l.Items, c.get(ctx, &l, "/v1/kernels", "all", all)
}

// Kernel returns what is known of the python kernel of a branch. Refusal: wire.NotFound for a branch that there is not.
func (c *Client) Kernel(ctx context.Context, branch string) (wire.KernelView, error) {
	var out wire.KernelView
	return out, c.get(ctx, &out, branchPath(branch)+"/kernel")
}

// FollowKernel gives what is known of the python kernel of a branch to fn, now and after each change, from this goroutine. It
// ends as Follow does; it has no cursor, since what is true now comes first.
func (c *Client) FollowKernel(ctx context.Context, branch string, fn func(wire.KernelView) error) error {
	return c.stream(ctx, branchPath(branch)+"/kernel/events", wire.Cursor{}, func(kind, _ string, data []byte) error {
		if err := streamEnd(kind, data); err != nil {
			return err
		}
		if kind != wire.KernelObserved {
			return nil
		}
		var v wire.KernelView
		if err := decode(data, &v); err != nil {
			return err
		}
		return fn(v)
	})
}

// streamEnd is the error with which a stream's last event ends it, nil for any other event.
func streamEnd(kind string, data []byte) error {
	switch kind {
	case wire.DaemonStopping:
		return ErrStopped
	case wire.StreamRefused, wire.StreamFailed:
		return refused(data)
	}
	return nil
}

// RestartKernel ends the python kernel of a branch with its jobs and cells, whether it answers or not. The names are gone; the
// next cell begins in a fresh one. It is never made again by itself. Refusals: wire.NotFound, wire.NotRestarted.
func (c *Client) RestartKernel(ctx context.Context, branch string) (wire.RestartedKernel, error) {
	var out wire.RestartedKernel
	return out, c.single(ctx, c.options.Timeout+slack, &out, branchPath(branch)+"/kernel/restart")
}

// slack is what an answer takes longer that waits for OS processes to end.
const slack = 15 * time.Second

// Complete returns the names that may stand at a place in a text, as the python kernel of a branch knows them; none without a
// kernel. Refusals: wire.NotFound, wire.Unreachable.
func (c *Client) Complete(ctx context.Context, branch, text string, cursor int) (wire.Completion, error) {
	var out wire.Completion
	return out, c.do(ctx, http.MethodPut, &out, wire.Complete{Text: text, Cursor: cursor}, branchPath(branch)+"/complete")
}

// Jobs returns the jobs that run in the python kernel of a branch, sorted by id. Refusal: wire.NotFound.
func (c *Client) Jobs(ctx context.Context, branch string) ([]wire.RunningJob, error) {
	var l wire.List[wire.RunningJob]
	return l.Items, c.get(ctx, &l, branchPath(branch)+"/jobs")
}

// RecentJobs returns the jobs that the python kernel of a branch still knows, or without one the store, the newest first.
// Refusal: wire.NotFound.
func (c *Client) RecentJobs(ctx context.Context, branch string) ([]wire.Job, error) {
	var l wire.List[wire.Job]
	return l.Items, c.get(ctx, &l, branchPath(branch)+"/jobs/recent")
}

// End is the offset of JobOutput that means the end of the output, whatever its size.
const End = -1

// JobOutput returns the part of a job's output that begins at a byte offset, or with End its last part, at most limit bytes (0
// for wire.DefaultJob, else wire.MinJob to wire.MaxJob). It withdraws no wake. Refusals: wire.NotFound, wire.JobNotFound,
// wire.OutputLost for a part that was not kept, wire.Unreachable.
func (c *Client) JobOutput(ctx context.Context, branch, job string, offset, limit int64) (wire.JobPage, error) {
	from := ""
	if offset >= 0 {
		from = strconv.FormatInt(offset, 10)
	}
	var out wire.JobPage
	return out, c.get(ctx, &out, jobPath(branch, job)+"/output", "offset", from, "limit", number(limit))
}

// FollowJob follows a job's output from a byte offset on until the job has ended, and gives each page to fn, from this
// goroutine; gap is set, and the page is the zero one, where a part was not kept. It returns the offset behind the last page
// that fn took, and nil when the job has ended or fn has returned ErrEnough; else an error as Follow's, after which FollowJob
// called again with that offset goes on.
func (c *Client) FollowJob(ctx context.Context, branch, job string, offset int64, fn func(p wire.JobPage, gap *wire.JobGap) error) (int64, error) {
	at := offset
	err := c.stream(ctx, jobPath(branch, job)+"/output/events?offset="+strconv.FormatInt(offset, 10), wire.Cursor{}, func(kind, _ string, data []byte) error {
		if err := streamEnd(kind, data); err != nil {
			return err
		}
		var p wire.JobPage
		var gap *wire.JobGap
		var err error
		switch kind {
		case wire.JobOutput:
			err = decode(data, &p)
		case wire.JobLostOutput:
			gap = new(wire.JobGap)
			err = decode(data, gap)
		default:
			return nil
		}
		if err == nil {
			err = fn(p, gap)
		}
		if err != nil {
			return err
		}
		if gap != nil {
			at = gap.Next
			return nil
		}
		if at = p.Next; !p.Running && (p.Text == "" || p.Next >= p.Size) {
			return ErrEnough
		}
		return nil
	})
	return at, err
}

// StopJob stops a job with all that it has started; after nil nothing of it runs. It is never made again by itself: after a
// lost answer look at Jobs first. Refusals: wire.NotFound, wire.JobNotFound, wire.Unconfirmed where it may still run.
func (c *Client) StopJob(ctx context.Context, branch, job string) error {
	return c.single(ctx, c.options.Timeout+slack, new(wire.StoppedJob), jobPath(branch, job)+"/stop")
}

// CellImage returns the bytes of an image of a cell, counted from 1, and their media type. Refusal: wire.NotFound.
func (c *Client) CellImage(ctx context.Context, cell string, n int) (bytes []byte, media string, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	resp, err := c.send(ctx, http.MethodGet, cellPath(cell)+"/images/"+strconv.Itoa(n), nil, nil)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	if bytes, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer)); err != nil {
		return nil, "", failed(ctx, err)
	}
	return bytes, resp.Header.Get("Content-Type"), nil
}

// CellTrace returns what a cell has changed in the files of its workspace. Refusal: wire.NotFound.
func (c *Client) CellTrace(ctx context.Context, cell string) (wire.CellTrace, error) {
	var out wire.CellTrace
	return out, c.get(ctx, &out, cellPath(cell)+"/trace")
}
