package pykernels

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"soma/client"
	"soma/internal/cli/exit"
	"soma/internal/cli/plain"
	"soma/wire"
)

func cmdJobOutput(p Program) *cobra.Command {
	var follow bool
	var bytes int64
	cmd := &cobra.Command{
		Use:   "output WHAT JOB | output JOB",
		Short: "print what a job has written",
		Long: "output prints the end of what a job has written, of all of it with --bytes 0; with -f it goes on with what comes, until the\n" +
			"job has ended. WHAT can be left out where only one python kernel, or that of soma py in this folder, knows such a job. Looking withdraws no wake that an agent is\n" +
			"owed. What was not kept is told: 16 MiB of a job's output are, and always its end.",
		Example:           "  soma job output 3 j1\n  soma job output -f j1",
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: completeWhat(p, true),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if bytes < 0 || bytes > 0 && bytes < wire.MinJob {
				return exit.Faultf(exit.Usage, "give 0 for all, or 4 and more", "cannot print the last %d bytes", bytes)
			}
			if err := p.Ensure(ctx); err != nil {
				return err
			}
			k, job, err := jobOf(ctx, p, args)
			if err != nil {
				return err
			}
			o := &printer{p: p, k: k, job: job}
			at, running, err := o.last(ctx, bytes)
			if err != nil || !follow || !running {
				return err
			}
			return o.follow(ctx, at)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what comes, until the job has ended")
	cmd.Flags().Int64Var(&bytes, "bytes", wire.DefaultJob, "print the last `N` bytes, or with 0 all")
	return cmd
}

// jobOf finds the kernel and job that are meant.
func jobOf(ctx context.Context, p Program, args []string) (k wire.PyKernel, job string, err error) {
	if len(args) == 2 {
		k, err = live(ctx, p, args[0])
		return k, args[1], err
	}
	job = args[0]
	found, err := byJob(ctx, p, job)
	if err != nil {
		return k, job, err
	}
	if len(found) > 1 {
		dir, err := p.Workspace()
		if i := slices.IndexFunc(found, func(k wire.PyKernel) bool { return isOf(k, dir) }); err == nil && i >= 0 {
			return found[i], job, nil
		}
		var names []string
		for _, k := range found {
			names = append(names, short(k))
		}
		return k, job, exit.Faultf(exit.Usage, "put one of them before the job", "cannot tell which job is meant: those of %s know a job %q", strings.Join(names, ", "), job)
	}
	if len(found) == 0 {
		return k, job, exit.Faultf(exit.NotFound, "see soma jobs --all", "cannot find job %q in a python kernel that lives", job)
	}
	return found[0], job, nil
}

// printer prints the output of one job.
type printer struct {
	p       Program
	k       wire.PyKernel
	job     string
	cleaner plain.Cleaner
}

func (o *printer) page(ctx context.Context, offset, limit int64) (page wire.JobPage, err error) {
	err = o.p.Keep(ctx, func() (err error) {
		page, err = o.p.Client().JobOutput(ctx, o.k.Branch, o.job, offset, limit)
		return err
	})
	return page, err
}

// last prints the last n bytes, or with 0 all that was kept, and returns the offset behind them and whether the job runs.
func (o *printer) last(ctx context.Context, n int64) (at int64, running bool, err error) {
	end, err := o.page(ctx, client.End, min(max(n, wire.MinJob), wire.MaxJob))
	if err != nil {
		return 0, false, err
	}
	from := max(0, end.Size-n)
	if n == 0 {
		from = 0
	}
	if n > 0 && n <= wire.MaxJob || from >= end.Offset {
		return end.Next, end.Running, o.print(end)
	}
	for at = from; ; {
		page, err := o.page(ctx, at, wire.MaxJob)
		var refusal *wire.Error
		if errors.As(err, &refusal) && refusal.Code == wire.OutputLost {
			if page, err = o.page(ctx, client.End, wire.MaxJob); err == nil && page.Offset > at {
				err = o.gap(wire.JobGap{Job: o.job, Offset: at, Next: page.Offset})
			}
		}
		if err != nil {
			return at, false, err
		}
		if err := o.print(page); err != nil {
			return at, false, err
		}
		at = page.Next
		if page.Text == "" || page.Next >= page.Size {
			return at, page.Running, nil
		}
	}
}

// A python kernel that cannot be asked is asked again, for backWait at most: it may be found again after a daemon was lost.
const (
	backWait = 30 * time.Second
	backGap  = 500 * time.Millisecond
)

// follow prints what comes, through the death of daemons, until the job has ended.
func (o *printer) follow(ctx context.Context, at int64) error {
	var err error
	for heard := time.Now(); ; {
		err = o.p.Keep(ctx, func() (err error) {
			at, err = o.p.Client().FollowJob(ctx, o.k.Branch, o.job, at, func(page wire.JobPage, gap *wire.JobGap) error {
				heard = time.Now()
				if gap != nil {
					return o.gap(*gap)
				}
				return o.print(page)
			})
			return err
		})
		var refusal *wire.Error
		if !errors.As(err, &refusal) || refusal.Code != wire.Unreachable || time.Since(heard) > backWait {
			break
		}
		select {
		case <-time.After(backGap):
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
	}
	if ctx.Err() != nil {
		return exit.Quiet(exit.OK) // the job runs on
	}
	return exit.Stopped(err, "soma job output -f %s %s", short(o.k), o.job)
}

// print prints a page: as the job wrote it, but on a terminal without what would speak to that.
func (o *printer) print(page wire.JobPage) error {
	if o.p.JSON() {
		return o.p.PrintJSON(page)
	}
	text := page.Text
	if o.p.Terminal() {
		text = o.cleaner.Clean(text)
	}
	_, err := io.WriteString(o.p.Output(), text)
	return err
}

func (o *printer) gap(g wire.JobGap) error {
	if o.p.JSON() {
		return o.p.PrintJSON(map[string]any{"kind": wire.JobLostOutput, "body": g})
	}
	o.p.Say("%s of output were not kept", plain.Size(g.Next-g.Offset))
	return nil
}

func cmdJobStop(p Program) *cobra.Command {
	return &cobra.Command{
		Use:   "stop WHAT JOB | stop JOB",
		Short: "stop a job with all that it has started",
		Long: "stop ends a job with all that it has started, and waits until nothing of it runs any more. It fails where it cannot tell: then\n" +
			"look at soma jobs before trying again. WHAT can be left out as for output.",
		Example:           "  soma job stop 3 j1\n  soma job stop . j1",
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: completeWhat(p, true),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if err := p.Ensure(ctx); err != nil {
				return err
			}
			k, job, err := jobOf(ctx, p, args)
			if err != nil {
				return err
			}
			if err := patiently(p, "waiting for the job to end", func() error { return p.Client().StopJob(ctx, k.Branch, job) }); err != nil {
				return err
			}
			if p.JSON() {
				return p.PrintJSON(wire.StoppedJob{Job: job})
			}
			_, err = fmt.Fprintf(p.Output(), "stopped job %s of %s\n", job, named(k))
			return err
		},
	}
}
