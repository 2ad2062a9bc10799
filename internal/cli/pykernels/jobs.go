package pykernels

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"soma/internal/cli/plain"
	"soma/wire"
)

// place is where a job runs.
type place struct {
	Kernel  string `json:"kernel,omitempty"`
	Branch  string `json:"branch"`
	Session string `json:"session"`
	Process uint64 `json:"process,omitempty"`
}

// jobRow is a job of a list: one that runs, or a row of the book.
type jobRow struct {
	place
	where   string
	running *wire.RunningJob
	book    *wire.Job
}

// MarshalJSON writes the job with the place beside it.
func (r jobRow) MarshalJSON() ([]byte, error) {
	if r.book != nil {
		return json.Marshal(struct {
			place
			wire.Job
		}{r.place, *r.book})
	}
	return json.Marshal(struct {
		place
		wire.RunningJob
	}{r.place, *r.running})
}

func cmdJobs(p Program) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "jobs [WHAT]",
		Short: "list the jobs of python kernels",
		Long: "jobs lists the jobs that run: of the python kernel that WHAT means, or of all. WHAT is the pid of a process, or the id of a\n" +
			"kernel, session or branch, or the beginning of one that fits nothing else. With --all finished ones are listed too, the newest\n" +
			"first, as the kernel itself knows them. Looking at jobs withdraws no wake that an agent is owed.",
		Example:           "  soma jobs\n  soma jobs 3 --all",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeWhat(p, false),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if err := p.Ensure(ctx); err != nil {
				return err
			}
			var kernels []wire.PyKernel
			if len(args) == 1 {
				k, err := live(ctx, p, args[0])
				if err != nil {
					return err
				}
				kernels = append(kernels, k)
			} else if err := p.Keep(ctx, func() (err error) { kernels, err = p.Client().Kernels(ctx, false); return err }); err != nil {
				return err
			}
			list := []jobRow{}
			for _, k := range kernels {
				rows, err := jobsOf(ctx, p, k, all)
				var refusal *wire.Error
				if len(args) == 0 && errors.As(err, &refusal) && refusal.Code == wire.Unreachable { // the others can be shown
					p.Say("cannot list the jobs of %s: %s", named(k), refusal.Title)
					continue
				}
				if err != nil {
					return err
				}
				list = append(list, rows...)
			}
			if p.JSON() {
				return p.PrintJSON(wire.List[jobRow]{Items: list})
			}
			_, err := io.WriteString(p.Output(), jobTable(list, all, time.Now()))
			return err
		},
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "list finished jobs too")
	return cmd
}

// jobsOf lists the jobs of one python kernel.
func jobsOf(ctx context.Context, p Program, k wire.PyKernel, all bool) (list []jobRow, err error) {
	row := jobRow{place: place{k.ID, k.Branch, k.Session, k.PID}, where: short(k)}
	err = p.Keep(ctx, func() error {
		list = nil
		if all {
			jobs, err := p.Client().RecentJobs(ctx, k.Branch)
			for i := range jobs {
				row.book = &jobs[i]
				list = append(list, row)
			}
			return err
		}
		jobs, err := p.Client().Jobs(ctx, k.Branch)
		for i := range jobs {
			row.running = &jobs[i]
			list = append(list, row)
		}
		return err
	})
	return list, err
}

// commandWidth is how much of a command a table shows, in characters.
const commandWidth = 80

func jobTable(list []jobRow, all bool, now time.Time) string {
	if all {
		rows := [][]string{{"JOB", "WHAT", "STATE", "EXIT", "RAN", "OUTPUT", "COMMAND"}}
		for _, r := range list {
			j := r.book
			rows = append(rows, []string{plain.Clean(j.ID), plain.Clean(r.where), jobState(j), exitText(j), ran(j, now), plain.Size(j.Bytes), jobCommand(j.Command, j.Service)})
		}
		return plain.Table(rows, map[int]bool{3: true, 4: true, 5: true})
	}
	rows := [][]string{{"JOB", "WHAT", "OSPID", "AGE", "COMMAND"}}
	for _, r := range list {
		j := r.running
		rows = append(rows, []string{plain.Clean(j.ID), plain.Clean(r.where), jobPID(*j), since(j.Started, now), jobCommand(j.Command, j.Service)})
	}
	return plain.Table(rows, map[int]bool{2: true, 3: true})
}

func jobPID(j wire.RunningJob) string {
	if j.PID == nil {
		return "-"
	}
	return strconv.Itoa(*j.PID)
}

func jobState(j *wire.Job) string {
	if j.TimedOut {
		return "timed out"
	}
	return plain.Clean(j.State)
}

func exitText(j *wire.Job) string {
	switch {
	case j.ExitCode != nil:
		return strconv.Itoa(*j.ExitCode)
	case j.State == wire.JobRunning:
		return "-"
	}
	return "?"
}

// since is how long ago a moment in Unix milliseconds was.
func since(ms int64, now time.Time) string {
	if ms == 0 {
		return "?"
	}
	return plain.Age(now.Sub(time.UnixMilli(ms)))
}

func ran(j *wire.Job, now time.Time) string {
	if j.Started == 0 || j.State == wire.JobLost && j.Ended == 0 {
		return "?"
	}
	return plain.Age(time.UnixMilli(cmp.Or(j.Ended, now.UnixMilli())).Sub(time.UnixMilli(j.Started)))
}

func jobCommand(command string, service bool) string {
	text := oneLine(command, commandWidth)
	if service {
		text += " (service)"
	}
	return text
}

// byJob finds the live python kernels that know a job.
func byJob(ctx context.Context, p Program, job string) (found []wire.PyKernel, err error) {
	var kernels []wire.PyKernel
	if err := p.Keep(ctx, func() (err error) { kernels, err = p.Client().Kernels(ctx, false); return err }); err != nil {
		return nil, err
	}
	for _, one := range kernels {
		rows, err := jobsOf(ctx, p, one, true)
		var refusal *wire.Error
		if errors.As(err, &refusal) && refusal.Code == wire.Unreachable {
			p.Say("cannot look for the job in %s: %s", named(one), refusal.Title)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot look for job %s: %w", job, err)
		}
		if slices.ContainsFunc(rows, func(r jobRow) bool { return r.book.ID == job }) {
			found = append(found, one)
		}
	}
	return found, nil
}
