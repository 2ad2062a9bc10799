package pykernels

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"soma/internal/cli/exit"
	"soma/internal/cli/plain"
	"soma/wire"
)

// find returns the python kernel that a person means: a live one, else the newest that has ended; for a process or session that
// never had one, only its branch is set.
func find(ctx context.Context, p Program, what string) (k wire.PyKernel, err error) {
	if what == here {
		if what, err = p.Workspace(); err != nil {
			return k, err
		}
	}
	err = p.Keep(ctx, func() error {
		for _, ended := range []bool{false, true} {
			list, err := p.Client().Kernels(ctx, ended)
			if err != nil {
				return err
			}
			if found, err := match(list, what); err != nil || found != nil {
				if found != nil {
					k = *found
				}
				return err
			}
		}
		return without(ctx, p, what, &k)
	})
	return k, err
}

// here names the python kernel of soma py in the folder one stands in.
const here = "."

// isOf reports whether a kernel is that of soma py in a folder.
func isOf(k wire.PyKernel, folder string) bool { return k.PID == 0 && k.Workspace == folder }

// live is find for those who do something: an ended kernel that is named by its own id does not stand for the one that came after it.
func live(ctx context.Context, p Program, what string) (k wire.PyKernel, err error) {
	if k, err = find(ctx, p, what); err != nil || k.EndedAt == nil {
		return k, err
	}
	err = p.Keep(ctx, func() error {
		list, err := p.Client().Kernels(ctx, false)
		if err == nil && slices.ContainsFunc(list, func(l wire.PyKernel) bool { return l.Branch == k.Branch }) {
			err = exit.Faultf(exit.NotFound, "write it as "+short(k), "cannot take python kernel %q: it has ended, and another one has its place", k.ID)
		}
		return err
	})
	return k, err
}

// match finds the one kernel that is meant in a list in which the newest come last, nil if none is. Several are an error, but
// for those of one branch, of which the newest is meant.
func match(list []wire.PyKernel, what string) (*wire.PyKernel, error) {
	number, _ := strconv.ParseUint(what, 10, 64) // 0: no kernel has it
	names := func(k wire.PyKernel) []string { return []string{k.ID, k.Session, k.Branch} }
	for _, fits := range []func(wire.PyKernel) bool{
		func(k wire.PyKernel) bool { return number != 0 && k.PID == number },
		func(k wire.PyKernel) bool { return isOf(k, what) || slices.Contains(names(k), what) },
		func(k wire.PyKernel) bool {
			return what != "" && slices.ContainsFunc(names(k), func(s string) bool { return strings.HasPrefix(s, what) })
		},
	} {
		var found *wire.PyKernel
		for i := range slices.Backward(list) {
			k := list[i]
			if !fits(k) || found != nil && found.Branch == k.Branch {
				continue
			}
			if found != nil {
				return nil, exit.Faultf(exit.Usage, "write more of it, or a pid: see soma kernels", "cannot tell which python kernel is meant by %q", what)
			}
			found = &k
		}
		if found != nil {
			return found, nil
		}
	}
	return nil, nil
}

// without finds the branch of a process or session that has no python kernel.
func without(ctx context.Context, p Program, what string, k *wire.PyKernel) error {
	var refusal *wire.Error
	missing := func(err error) bool {
		return errors.As(err, &refusal) && (refusal.Code == wire.NotFound || refusal.Code == wire.BadRequest)
	}
	if pid, err := strconv.ParseUint(what, 10, 63); err == nil && pid > 0 {
		process, err := p.Client().Process(ctx, pid)
		if err == nil {
			*k = wire.PyKernel{Branch: process.Branch, Session: process.Session, PID: pid}
		}
		if !missing(err) {
			return err
		}
	}
	if wire.ValidID(what) {
		session, err := p.Client().Session(ctx, what)
		if err == nil {
			*k = wire.PyKernel{Branch: session.Branch, Session: session.ID, PID: session.PID}
		}
		if !missing(err) {
			return err
		}
	}
	return exit.Faultf(exit.NotFound, "see soma kernels, or soma ps -a", "cannot find a python kernel by %q", what)
}

// named is a kernel as a person names it.
func named(k wire.PyKernel) string {
	if k.PID != 0 {
		return fmt.Sprintf("process %d", k.PID)
	}
	return "session " + cmp.Or(k.Session, k.Branch)
}

// short is how a person names a kernel to a command.
func short(k wire.PyKernel) string {
	if k.PID != 0 {
		return strconv.FormatUint(k.PID, 10)
	}
	return cmp.Or(k.Session, k.Branch)
}

// completeWhat proposes live python kernels, and after one, where jobs is set, its jobs.
func completeWhat(p Program, jobs bool) func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return func(cmd *cobra.Command, args []string, _ string) (list []cobra.Completion, _ cobra.ShellCompDirective) {
		none := cobra.ShellCompDirectiveNoFileComp
		if len(args) > 1 || len(args) == 1 && !jobs || p.Open() != nil {
			return nil, none
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completeWait)
		defer cancel()
		kernels, err := p.Client().Kernels(ctx, false)
		if err != nil {
			return nil, none
		}
		if len(args) == 0 {
			for _, k := range kernels {
				list = append(list, cobra.CompletionWithDesc(short(k), plain.Clean(k.State+" in "+k.Workspace)))
			}
			return list, none
		}
		k, err := match(kernels, args[0])
		if err != nil || k == nil {
			return nil, none
		}
		running, err := p.Client().Jobs(ctx, k.Branch)
		if err != nil {
			return nil, none
		}
		for _, j := range running {
			list = append(list, cobra.CompletionWithDesc(j.ID, oneLine(j.Command, 60)))
		}
		return list, none
	}
}

// oneLine is a text without what would speak to a terminal, on one line of at most n characters.
func oneLine(text string, n int) string {
	text = strings.Join(strings.Fields(plain.Clean(text)), " ")
	if runes := []rune(text); len(runes) > n {
		return string(runes[:n-1]) + "…"
	}
	return text
}
