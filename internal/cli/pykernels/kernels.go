package pykernels

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"soma/internal/cli/exit"
	"soma/internal/cli/plain"
	"soma/wire"
)

func cmdKernels(p Program) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "kernels",
		Short: "list python kernels",
		Long: "kernels lists the python kernels that live: the process whose code runs in it, state, OS process, jobs and cells that run,\n" +
			"memory, age, interpreter and folder. What is not known at the moment shows as ?.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			if err := p.Ensure(ctx); err != nil {
				return err
			}
			var list []wire.PyKernel
			if err := p.Keep(ctx, func() (err error) { list, err = p.Client().Kernels(ctx, all); return err }); err != nil {
				return err
			}
			if p.JSON() {
				return p.PrintJSON(wire.List[wire.PyKernel]{Items: list})
			}
			_, err := io.WriteString(p.Output(), kernelTable(list, time.Now()))
			return err
		},
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "list ended kernels too, the newest 1000")
	return cmd
}

func kernelTable(list []wire.PyKernel, now time.Time) string {
	rows := [][]string{{"KERNEL", "PID", "STATE", "OSPID", "JOBS", "CELLS", "MEMORY", "AGE", "PYTHON", "WORKSPACE"}}
	shared := slices.ContainsFunc(list, func(k wire.PyKernel) bool { return k.Node != "" })
	if shared {
		rows[0] = append(rows[0], "NODE")
	}
	for _, k := range list {
		row := []string{
			plain.Clean(k.ID), orDash(int(k.PID)), k.State, orDash(k.OSPID), count(k, k.Jobs), count(k, k.Cells), memory(k),
			plain.Age(now.Sub(k.StartedAt)), cmp.Or(plain.Clean(k.Python), "-"), plain.Clean(k.Workspace),
		}
		if shared {
			row = append(row, cmp.Or(plain.Clean(k.Node), "-"))
		}
		rows = append(rows, row)
	}
	return plain.Table(rows, map[int]bool{1: true, 3: true, 4: true, 5: true, 6: true, 7: true})
}

func orDash(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

// count is a number of what runs; nothing runs in a kernel that has ended.
func count(k wire.PyKernel, n *int) string {
	switch {
	case k.EndedAt != nil:
		return "-"
	case n == nil:
		return "?"
	}
	return strconv.Itoa(*n)
}

func memory(k wire.PyKernel) string {
	switch {
	case k.EndedAt != nil:
		return "-"
	case k.Memory == nil:
		return "?"
	}
	return plain.Size(*k.Memory)
}

func cmdShow(p Program) *cobra.Command {
	return &cobra.Command{
		Use:               "show WHAT",
		Short:             "show a python kernel and what runs in it",
		Long:              "show tells all that is known of a python kernel at this moment, and lists the jobs that run in it. Asking starts none.",
		Example:           "  soma kernel show 3",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeWhat(p, false),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if err := p.Ensure(ctx); err != nil {
				return err
			}
			k, err := find(ctx, p, args[0])
			if err != nil {
				return err
			}
			v := wire.KernelView{Branch: k.Branch}
			if k.ID == "" || k.EndedAt == nil {
				if err := p.Keep(ctx, func() (err error) { v, err = p.Client().Kernel(ctx, k.Branch); return err }); err != nil {
					return err
				}
			}
			if v.Kernel == nil && k.ID != "" { // the one before
				v.Kernel = &k
			}
			if p.JSON() {
				return p.PrintJSON(v)
			}
			if v.Kernel == nil {
				_, err := fmt.Fprintf(p.Output(), "%s has no python kernel; its next cell begins in a fresh one\n", named(k))
				return err
			}
			_, err = io.WriteString(p.Output(), kernelText(v, time.Now()))
			return err
		},
	}
}

func kernelText(v wire.KernelView, now time.Time) string {
	k := *v.Kernel
	rows := [][]string{{"kernel", plain.Clean(k.ID)}, {"state", plain.Clean(strings.TrimSuffix(k.State+", "+k.Reason, ", "))}}
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, []string{name, plain.Clean(value)})
		}
	}
	if k.PID != 0 {
		add("process", strconv.FormatUint(k.PID, 10))
	}
	add("session", k.Session)
	add("branch", k.Branch)
	add("workspace", k.Workspace)
	add("python", k.Python)
	if k.OSPID != 0 {
		add("os pid", strconv.Itoa(k.OSPID))
	}
	add("started", fmt.Sprintf("%s (%s ago)", k.StartedAt.Local().Format(time.DateTime), plain.Age(now.Sub(k.StartedAt))))
	if k.EndedAt != nil {
		add("ended", k.EndedAt.Local().Format(time.DateTime))
	} else {
		add("used", plain.Age(now.Sub(k.UsedAt))+" ago")
		add("memory", memory(k))
		add("cells", count(k, k.Cells))
		add("jobs", count(k, v.LiveJobs))
	}
	add("node", k.Node)
	text := plain.Table(rows, nil)
	if v.Running != nil && len(*v.Running) > 0 {
		table := [][]string{{"JOB", "OSPID", "AGE", "COMMAND"}}
		for _, j := range *v.Running {
			table = append(table, []string{plain.Clean(j.ID), jobPID(j), since(j.Started, now), jobCommand(j.Command, j.Service)})
		}
		text += "\n" + plain.Table(table, map[int]bool{1: true, 2: true})
	}
	return text
}

func cmdRestart(p Program) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "restart WHAT",
		Short: "end a python kernel; the next cell begins in a fresh one",
		Long: "restart ends a python kernel with all its jobs and cells, also one that does not answer any more. Its names are gone. The\n" +
			"next cell begins in a fresh kernel, and an agent is told so.",
		Example:           "  soma kernel restart 3\n  soma kernel restart --yes 3",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeWhat(p, false),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if err := p.Ensure(ctx); err != nil {
				return err
			}
			k, err := live(ctx, p, args[0])
			if err != nil {
				return err
			}
			if err := sure(p, yes || k.ID == "" || k.EndedAt != nil, k); err != nil {
				return err
			}
			var done wire.RestartedKernel
			err = patiently(p, "waiting for the python kernel and its jobs to end", func() (err error) {
				done, err = p.Client().RestartKernel(ctx, k.Branch)
				return err
			})
			if err != nil {
				return err
			}
			if p.JSON() {
				return p.PrintJSON(done)
			}
			text := fmt.Sprintf("%s has no python kernel; its next cell begins in a fresh one", named(k))
			if done.Old != "" {
				text = fmt.Sprintf("ended the python kernel of %s with %s and %s; the next cell begins in a fresh one", named(k),
					many(len(done.Jobs), "job"), many(len(done.Cells), "cell"))
			}
			_, err = fmt.Fprintln(p.Output(), text)
			return err
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// sure asks the person, unless he has said yes already.
func sure(p Program, yes bool, k wire.PyKernel) error {
	if yes {
		return nil
	}
	question := fmt.Sprintf("end the python kernel of %s? its names will be gone", named(k))
	if k.Jobs != nil && k.Cells != nil && *k.Jobs+*k.Cells > 0 {
		question = fmt.Sprintf("end the python kernel of %s, with %s and %s that run? its names will be gone", named(k), many(*k.Jobs, "job"), many(*k.Cells, "cell"))
	}
	yes, ok := p.Ask(question)
	switch {
	case !ok:
		return exit.Faultf(exit.Usage, "say --yes", "cannot ask whether to end the python kernel: this is no terminal")
	case !yes:
		return exit.Faultf(exit.Refused, "", "cannot go on: nothing was ended")
	}
	return nil
}

func many(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
