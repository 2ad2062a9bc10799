package api

import (
	"context"
	"mime"
	"strconv"
	"unicode/utf8"

	"soma/wire"
)

// Pykernels is what the routes of python kernels, their jobs and what their cells leave behind ask for, under the terms of
// Sessions. Branches, jobs and cells are named by their ids. No method starts a python kernel. One that has to ask a kernel
// waits for a bounded time; the error is then a wire.Unreachable.
type Pykernels interface {
	// Kernels returns at most wire.MaxPyKernels kernels by age: live ones, with ended also those, of which the newest.
	Kernels(ctx context.Context, ended bool) ([]wire.PyKernel, error)
	Kernel(ctx context.Context, branch string) (wire.KernelView, error)
	// WatchKernel calls changed, which must not block, after each change of what Kernel would return, until end is called.
	WatchKernel(ctx context.Context, branch string, changed func()) (end func(), err error)
	// Jobs returns all jobs that run, sorted by id.
	Jobs(ctx context.Context, branch string) ([]wire.RunningJob, error)
	RecentJobs(ctx context.Context, branch string) ([]wire.Job, error)
	// JobOutput returns the page that begins at an offset, or the last one where offset is nil.
	JobOutput(ctx context.Context, branch, job string, offset *int64, limit int64) (wire.JobPage, error)
	StopJob(ctx context.Context, branch, job string) (wire.StoppedJob, error)
	Restart(ctx context.Context, branch string) (wire.RestartedKernel, error)
	Complete(ctx context.Context, branch string, c wire.Complete) (wire.Completion, error)
	// CellOutput returns at most limit bytes of a cell's output from offset on, also while it runs.
	CellOutput(ctx context.Context, cell string, offset, limit int64) (wire.OutputPage, error)
	// CellImage returns an image of a cell, counted from 1, with its media type.
	CellImage(ctx context.Context, cell string, n int) (wire.CellImage, []byte, error)
	CellTrace(ctx context.Context, cell string) (wire.CellTrace, error)
}

func listKernels(s *Server, ctx context.Context, c *call) (any, error) {
	all, err := c.flag("all")
	if err != nil {
		return nil, err
	}
	list, err := s.Pykernels.Kernels(ctx, all)
	return wire.List[wire.PyKernel]{Items: some(list)}, err
}

func getKernel(s *Server, ctx context.Context, c *call) (any, error) {
	branch, err := c.id("branch")
	if err != nil {
		return nil, err
	}
	return s.Pykernels.Kernel(ctx, branch)
}

func listJobs(s *Server, ctx context.Context, c *call) (any, error) {
	branch, err := c.id("branch")
	if err != nil {
		return nil, err
	}
	list, err := s.Pykernels.Jobs(ctx, branch)
	return wire.List[wire.RunningJob]{Items: some(list)}, err
}

func recentJobs(s *Server, ctx context.Context, c *call) (any, error) {
	branch, err := c.id("branch")
	if err != nil {
		return nil, err
	}
	list, err := s.Pykernels.RecentJobs(ctx, branch)
	return wire.List[wire.Job]{Items: some(list)}, err
}

// job returns the branch and the job of the path.
func (c *call) job() (branch, job string, err error) {
	if branch, err = c.id("branch"); err != nil {
		return "", "", err
	}
	job, err = c.id("job")
	return branch, job, err
}

func jobOutput(s *Server, ctx context.Context, c *call) (any, error) {
	branch, job, err := c.job()
	if err != nil {
		return nil, err
	}
	limit, err := c.number("limit", wire.DefaultJob, wire.MinJob, wire.MaxJob)
	if err != nil {
		return nil, err
	}
	var from *int64
	if c.query.Has("offset") {
		n, err := c.number("offset", 0, 0, anyNumber)
		if err != nil {
			return nil, err
		}
		at := int64(n)
		from = &at
	}
	return s.Pykernels.JobOutput(ctx, branch, job, from, int64(limit))
}

func stopJob(s *Server, ctx context.Context, c *call) (any, error) {
	branch, job, err := c.job()
	if err != nil {
		return nil, err
	}
	return s.Pykernels.StopJob(ctx, branch, job)
}

func restartKernel(s *Server, ctx context.Context, c *call) (any, error) {
	branch, err := c.id("branch")
	if err != nil {
		return nil, err
	}
	done, err := s.Pykernels.Restart(ctx, branch)
	done.Jobs, done.Cells = some(done.Jobs), some(done.Cells)
	return done, err
}

func complete(s *Server, ctx context.Context, c *call) (any, error) {
	branch, err := c.id("branch")
	if err != nil {
		return nil, err
	}
	in, err := decode[wire.Complete](c)
	if err != nil {
		return nil, err
	}
	if in.Cursor < 0 || in.Cursor > utf8.RuneCountInString(in.Text) {
		return nil, wire.Errorf(wire.BadRequest, "the cursor is not within the text")
	}
	done, err := s.Pykernels.Complete(ctx, branch, in)
	done.Names = some(done.Names)
	return done, err
}

// imageKinds are the media types in which images are shown; what says it is another one is not handed out as that.
var imageKinds = map[string]bool{"image/png": true, "image/jpeg": true, "image/webp": true}

// cellImage answers with bytes that somebody's code has made: nothing but an image to whoever shows it.
func cellImage(s *Server, ctx context.Context, c *call) (any, error) {
	cell, err := c.id("cell")
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseUint(c.r.PathValue("n"), 10, 16)
	if err != nil || n == 0 {
		return nil, wire.Errorf(wire.BadRequest, "the number of the image is not a number above 0")
	}
	image, bytes, err := s.Pykernels.CellImage(ctx, cell, int(n))
	if err != nil {
		return nil, err
	}
	kind := image.Media
	if !imageKinds[kind] {
		kind = "application/octet-stream"
	}
	h := c.w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	h.Set("Content-Disposition", mime.FormatMediaType("inline", map[string]string{"filename": cell + "-" + strconv.FormatUint(n, 10)}))
	return document{kind, bytes}, nil
}

func cellTrace(s *Server, ctx context.Context, c *call) (any, error) {
	cell, err := c.id("cell")
	if err != nil {
		return nil, err
	}
	trace, err := s.Pykernels.CellTrace(ctx, cell)
	trace.Changes = some(trace.Changes)
	return trace, err
}

// flag reads a parameter of the query that is true or false.
func (c *call) flag(name string) (bool, error) {
	switch c.query.Get(name) {
	case "true":
		return true, nil
	case "", "false":
		return false, nil
	}
	return false, wire.Errorf(wire.BadRequest, "%s is not true or false", name)
}

// ready answers whether the daemon takes work.
func ready(s *Server, ctx context.Context, c *call) (any, error) {
	if serving(c.r.Context()).Err() != nil {
		return nil, wire.Errorf(wire.Stopping, "the daemon is stopping")
	}
	if err := s.Daemon.Ready(ctx); err != nil {
		return nil, err
	}
	return wire.Health{OK: true}, nil
}
