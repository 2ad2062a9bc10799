package api

import (
	"cmp"
	"context"
	"errors"
	"io"
	"reflect"
	"strconv"
	"time"

	"soma/wire"
)

// Bounds of the pause between two questions for a job's output: it grows while nothing comes.
const (
	jobPollLeast = 200 * time.Millisecond
	jobPollMost  = time.Second
)

// changes tells of changes, and of the end of a pause.
type changes struct {
	told  chan struct{} // capacity 1
	pause time.Duration // 0: none
}

func (c *changes) changed() {
	select {
	case c.told <- struct{}{}:
	default:
	}
}

// Next returns after a change, or at the end of the pause.
func (c *changes) Next(ctx context.Context) (struct{}, error) {
	var over <-chan time.Time
	if c.pause > 0 {
		t := time.NewTimer(c.pause)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-c.told:
	case <-over:
	case <-ctx.Done():
		return struct{}{}, ctx.Err()
	}
	return struct{}{}, nil
}

// watch begins to listen to what happens to a branch's python kernel.
func (s *Server) watch(ctx context.Context, branch string) (*changes, func(), error) {
	c := &changes{told: make(chan struct{}, 1)}
	end, err := s.Pykernels.WatchKernel(ctx, branch, c.changed)
	return c, end, err
}

// held returns io.EOF once another daemon holds the branch: who follows again finds that.
func (s *Server) held(ctx context.Context, branch string) error {
	if s.Peers == nil {
		return nil
	}
	held, err := s.Peers.Holds(ctx, Named{Branch: branch})
	if err == nil && !held {
		err = io.EOF
	}
	return err
}

// look waits for a change or the end of a pause; it keeps a reader who hears nothing else, and ends with held's error.
func (s *Server) look(ctx context.Context, told *changes, out *stream, branch string) error {
	_, err := next(s, ctx, told, out)
	if err == nil && time.Since(out.wrote) >= s.heartbeat {
		err = out.heartbeat()
	}
	if err == nil {
		err = s.held(ctx, branch)
	}
	return err
}

// followKernel streams a branch's python kernel: what is known of it, and again after each change. It listens before it looks.
func followKernel(s *Server, ctx context.Context, c *call) error {
	branch, err := c.id("branch")
	if err != nil {
		return err
	}
	told, end, err := s.watch(ctx, branch)
	if err != nil {
		return err
	}
	defer end()
	view, err := s.Pykernels.Kernel(ctx, branch)
	if err != nil {
		return err
	}
	out, err := s.begin(c)
	if err != nil {
		return err
	}
	if s.Peers != nil {
		told.pause = s.heartbeat / 2 // for held
	}
	for shown := (wire.KernelView{}); ; {
		if now := facts(view); !reflect.DeepEqual(now, shown) {
			shown = now
			if err = out.event(wire.KernelObserved, "", view); err == nil {
				err = out.flush()
			}
			if err != nil {
				return err
			}
		}
		if err = s.look(ctx, told, out, branch); err != nil {
			return err
		}
		if view, err = s.Pykernels.Kernel(ctx, branch); err != nil {
			return out.failed(err)
		}
	}
}

// facts leaves out what changes all the time and is no news.
func facts(v wire.KernelView) wire.KernelView {
	if v.Kernel != nil {
		k := *v.Kernel
		k.Memory, k.UsedAt = nil, time.Time{}
		v.Kernel = &k
	}
	return v
}

// failed tells the reader of a stream that has begun why it ends; an error that is no refusal stays one.
func (o *stream) failed(err error) error {
	var refusal *wire.Error
	if !errors.As(err, &refusal) || refusal.Code == wire.Internal {
		return err
	}
	return o.last(wire.StreamFailed, refusal)
}

// followJob streams a job's output from an offset on, until the job has ended and all of it was sent. The id of an event is
// the offset behind it. A part that was not kept is told by a gap.
func followJob(s *Server, ctx context.Context, c *call) error {
	branch, job, err := c.job()
	if err != nil {
		return err
	}
	at, err := strconv.ParseInt(cmp.Or(c.r.Header.Get("Last-Event-ID"), c.query.Get("offset"), "0"), 10, 64)
	if err != nil || at < 0 {
		return wire.Errorf(wire.BadRequest, "the offset is not a number")
	}
	told, end, err := s.watch(ctx, branch)
	if err != nil {
		return err
	}
	defer end()
	p, gap, err := s.jobPage(ctx, branch, job, at)
	if err != nil {
		return err
	}
	out, err := s.begin(c)
	if err != nil {
		return err
	}
	told.pause = jobPollLeast
	for {
		if gap != nil {
			if err := out.event(wire.JobLostOutput, strconv.FormatInt(gap.Next, 10), gap); err != nil {
				return err
			}
		}
		over := !p.Running && (p.Text == "" || p.Next >= p.Size)
		if p.Text != "" || over {
			if err := out.event(wire.JobOutput, strconv.FormatInt(p.Next, 10), p); err != nil {
				return err
			}
		}
		if err := out.flush(); err != nil || over {
			return err
		}
		switch at = p.Next; {
		case p.Text != "" && p.Next < p.Size: // more is there
			told.pause = jobPollLeast
			err = out.checkInRhythm(s.heartbeat)
		case p.Text != "":
			told.pause = jobPollLeast
			err = s.look(ctx, told, out, branch)
		default:
			told.pause = min(2*told.pause, jobPollMost)
			err = s.look(ctx, told, out, branch)
		}
		if err != nil {
			return err
		}
		if p, gap, err = s.jobPage(ctx, branch, job, at); err != nil {
			return out.failed(err)
		}
	}
}

// checkInRhythm looks at the token where the last look is a heartbeat ago.
func (o *stream) checkInRhythm(heartbeat time.Duration) error {
	if time.Since(o.checked) < heartbeat {
		return nil
	}
	return o.check()
}

// jobPage reads the output from an offset on. Where that was not kept, it is the page at the end, with the gap before it.
func (s *Server) jobPage(ctx context.Context, branch, job string, at int64) (wire.JobPage, *wire.JobGap, error) {
	p, err := s.Pykernels.JobOutput(ctx, branch, job, &at, wire.MaxJob)
	var refusal *wire.Error
	if !errors.As(err, &refusal) || refusal.Code != wire.OutputLost {
		return p, nil, err
	}
	last, endErr := s.Pykernels.JobOutput(ctx, branch, job, nil, wire.MaxJob)
	if endErr != nil || last.Offset <= at {
		return last, nil, err
	}
	return last, &wire.JobGap{Job: job, Offset: at, Next: last.Offset}, nil
}
