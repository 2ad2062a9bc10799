package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"soma/client"
	"soma/ident"
	"soma/internal/cli/exit"
	"soma/wire"
)

func (a *app) cmdAttach() *cobra.Command {
	var last, noFollow bool
	cmd := &cobra.Command{
		Use:   "attach [PID]",
		Short: "show what a process is doing, and follow it",
		Long: "attach prints the transcript from the start of the current agent turn and follows it to the end of the process; Ctrl-C\n" +
			"detaches. Without PID it takes this folder's newest live process, else the newest. With --last it takes whatever was\n" +
			"done last in this folder, also a cell of soma py.",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completePID,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if len(args) == 1 && last {
				return exit.Faultf(exit.Usage, "", "cannot take both a pid and --last")
			}
			if len(args) == 1 {
				if _, err := parsePID(args[0]); err != nil {
					return err
				}
			}
			if err := a.ensure(ctx); err != nil {
				return err
			}
			s, p, err := a.attachTo(ctx, args, last)
			if err != nil {
				return err
			}
			return a.attach(ctx, s, p, !noFollow)
		},
	}
	cmd.Flags().BoolVar(&last, "last", false, "take what was done last in this folder")
	cmd.Flags().BoolVar(&noFollow, "no-follow", false, "print what there is and return")
	return cmd
}

func parsePID(s string) (uint64, error) {
	pid, err := ident.ParsePID(s)
	if err != nil {
		return 0, exit.Faultf(exit.Usage, "see soma ps", "cannot understand %q: it is no pid", s)
	}
	return uint64(pid), nil
}

// attachTo finds what to attach to: a session and its process, or one without an agent.
func (a *app) attachTo(ctx context.Context, args []string, last bool) (wire.Session, *wire.Process, error) {
	if len(args) == 1 {
		return a.byPID(ctx, args[0])
	}
	dir, err := a.workspace()
	if err != nil {
		return wire.Session{}, nil, err
	}
	sessions, err := a.sessions(ctx, wire.SessionFilter{Workspace: dir})
	if err != nil {
		return wire.Session{}, nil, err
	}
	if last && len(sessions) > 0 {
		s, err := a.newestWork(ctx, sessions)
		if err != nil || s.PID == 0 {
			return s, nil, err
		}
		return a.byPID(ctx, fmt.Sprint(s.PID))
	}
	for _, f := range []wire.ProcessFilter{{Workspace: dir}, {Workspace: dir, All: true}, {All: true}} {
		found, err := a.client.AllProcesses(ctx, f)
		if err != nil {
			return wire.Session{}, nil, err
		}
		if len(found) > 0 {
			p := found[len(found)-1]
			if f.Workspace == "" {
				a.say("nothing ran in this folder; this is process %d in %s", p.PID, p.Workspace)
			}
			return a.byPID(ctx, fmt.Sprint(p.PID))
		}
	}
	return wire.Session{}, nil, notFound("cannot attach: no process was ever run")
}

// byPID returns a process and its session.
func (a *app) byPID(ctx context.Context, arg string) (s wire.Session, p *wire.Process, err error) {
	pid, err := parsePID(arg)
	if err != nil {
		return s, nil, err
	}
	p = new(wire.Process)
	err = a.keep(ctx, func() (err error) {
		if *p, err = a.client.Process(ctx, pid); err != nil {
			return err
		}
		s, err = a.client.Session(ctx, p.Session)
		return err
	})
	return s, p, err
}

func (a *app) sessions(ctx context.Context, f wire.SessionFilter) ([]wire.Session, error) {
	var all []wire.Session
	f.Limit = wire.MaxLimit
	for {
		page, err := a.client.Sessions(ctx, f)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if page.Next == "" || len(page.Items) == 0 {
			return all, nil
		}
		f.After = page.Next
	}
}

// newestWork returns the session that began the newest agent turn or cell.
func (a *app) newestWork(ctx context.Context, sessions []wire.Session) (wire.Session, error) {
	// Python sessions are long-lived, so that the newest work may be in an old one; of the others the newest will do.
	slices.SortFunc(sessions, func(x, y wire.Session) int { return y.CreatedAt.Compare(x.CreatedAt) })
	newest := sessions[0]
	i := slices.IndexFunc(sessions, func(s wire.Session) bool { return s.Kind == wire.SessionPy && s.LastEvent > 0 })
	if newest.Kind == wire.SessionPy || i < 0 {
		return newest, nil
	}
	py := sessions[i]
	var began [2]wire.Event
	for j, s := range []wire.Session{newest, py} {
		err := a.until(ctx, s.ID, wire.Cursor{}, s.LastEvent, func(f client.Frame) error {
			if f.Event != nil && begins(*f.Event) {
				began[j] = *f.Event
			}
			return nil
		})
		if err != nil {
			return wire.Session{}, err
		}
	}
	if began[1].At.After(began[0].At) {
		return py, nil
	}
	return newest, nil
}

// attach shows the newest turn or cell of a session and follows it. p is nil for a session without an agent.
func (a *app) attach(ctx context.Context, s wire.Session, p *wire.Process, follow bool) error {
	from, err := a.turnStart(ctx, s.ID, s.LastEvent)
	if err != nil {
		return err
	}
	ended := p != nil && p.ExitCode != nil
	if !follow || ended {
		show, finish := a.viewer(ctx, false)
		err := a.until(ctx, s.ID, from, s.LastEvent, show)
		if err := errors.Join(err, finish()); err != nil || !ended || !follow {
			return err
		}
		return exit.Quiet(*p.ExitCode)
	}
	if p == nil {
		return a.watchCell(ctx, s.ID, from)
	}
	return a.watch(ctx, p.PID, s.ID, from, &ending{attach: true})
}
