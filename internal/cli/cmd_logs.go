package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"soma/client"
	"soma/internal/cli/exit"
	"soma/internal/cli/plain"
	"soma/wire"
)

const (
	logTail   = 1 << 20 // bytes of the daemon's log that are shown at most
	logPoll   = 300 * time.Millisecond
	pageBytes = wire.DefaultOutput
)

func (a *app) cmdLogs() *cobra.Command {
	var follow, daemon bool
	var cell string
	cmd := &cobra.Command{
		Use:   "logs PID | logs --cell ID | logs --daemon",
		Short: "print a whole transcript, a cell's whole output, or the daemon's log",
		Long: "logs prints all that was asked, said and run in a process, with whole code; the output of a cell is folded there, and\n" +
			"with --cell ID all of it that was kept is printed: 16 MiB from the start and 64 KiB from the end, also while the cell runs.\n" +
			"The folding line names the ID. --daemon prints the end of the daemon's log and needs no daemon.",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completePID,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			given := len(args)
			if daemon {
				given++
			}
			if cell != "" {
				given++
			}
			switch {
			case given != 1:
				return exit.Faultf(exit.Usage, "give one of PID, --cell ID and --daemon", "cannot tell which log is meant")
			case daemon:
				return a.daemonLog(ctx, follow)
			case cell == "":
				if _, err := parsePID(args[0]); err != nil {
					return err
				}
			}
			if err := a.ensure(ctx); err != nil {
				return err
			}
			if cell != "" {
				return a.cellLog(ctx, cell, follow)
			}
			return a.processLog(ctx, args[0], follow)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what comes")
	cmd.Flags().BoolVar(&daemon, "daemon", false, "the daemon's log")
	cmd.Flags().StringVar(&cell, "cell", "", "all that the cell with this `ID` has written")
	return cmd
}

func (a *app) processLog(ctx context.Context, arg string, follow bool) error {
	s, p, err := a.byPID(ctx, arg)
	if err != nil {
		return err
	}
	show, finish := a.viewer(ctx, true)
	if follow && p.ExitCode == nil {
		e := &ending{attach: true}
		err = a.follow(ctx, s.ID, wire.Cursor{}, func(f client.Frame) error {
			if err := show(f); err != nil {
				return err
			}
			if err := a.judge(ctx, e, p.PID, f); err != nil || !e.done {
				return err
			}
			return client.ErrEnough
		})
		err = exit.Stopped(err, "soma logs -f %d", p.PID)
	} else {
		err = a.until(ctx, s.ID, wire.Cursor{}, s.LastEvent, show)
	}
	return errors.Join(err, finish())
}

// cellLog pages a cell's output.
func (a *app) cellLog(ctx context.Context, id string, follow bool) error {
	for offset := int64(0); ; {
		var page wire.OutputPage
		err := a.keep(ctx, func() (err error) { page, err = a.client.Output(ctx, id, offset, pageBytes); return err })
		var refusal *wire.Error
		if errors.As(err, &refusal) && refusal.Code == wire.NotFound {
			return exit.Faultf(exit.NotFound, "soma logs PID -o json has the ids of its cells", "cannot find cell %s", id)
		}
		if err != nil {
			return err
		}
		if a.asJSON {
			err = a.printJSON(page)
		} else if _, err = io.WriteString(a.Out, page.Text); err == nil && !page.Kept && page.Next > page.Offset {
			a.say("%s of output were not kept", plain.Size(page.Next-page.Offset))
		}
		switch {
		case err != nil || page.EOF:
			return err
		case page.Next > offset:
			offset = page.Next
		case !follow:
			return nil
		default:
			if err := pause(ctx, logPoll); err != nil {
				return err
			}
		}
	}
}

// daemonLog prints the end of the daemon's log. It needs no daemon.
func (a *app) daemonLog(ctx context.Context, follow bool) error {
	if a.asJSON && follow {
		return exit.Faultf(exit.Usage, "", "cannot follow the daemon's log as JSON")
	}
	name := a.home.DaemonLog()
	text, err := tail(name, logTail)
	if errors.Is(err, fs.ErrNotExist) {
		return exit.Faultf(exit.NotFound, "", "cannot show the daemon's log: no daemon was ever started on %s", a.home.Dir())
	}
	if err != nil {
		return exit.Faultf(exit.Failed, "", "cannot show the daemon's log: %w", err)
	}
	if len(text) == logTail {
		if i := bytes.IndexByte(text, '\n'); i >= 0 {
			text = text[i+1:]
		}
	}
	if a.asJSON {
		return a.printJSON(map[string]string{"path": name, "text": string(text)})
	}
	if _, err := a.Out.Write(text); err != nil || !follow {
		return err
	}
	return a.followFile(ctx, name)
}

// followFile prints what is added to a file, also after another one took its name.
func (a *app) followFile(ctx context.Context, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("cannot follow the daemon's log: %w", err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Seek(0, io.SeekEnd); err != nil {
		return fmt.Errorf("cannot follow the daemon's log: %w", err)
	}
	for {
		if _, err := io.Copy(a.Out, f); err != nil {
			return fmt.Errorf("cannot follow the daemon's log: %w", err)
		}
		if err := pause(ctx, logPoll); err != nil {
			return err
		}
		here, err1 := f.Stat()
		there, err2 := os.Stat(name)
		if err1 == nil && err2 == nil && !os.SameFile(here, there) {
			next, err := os.Open(name)
			if err != nil {
				continue
			}
			_ = f.Close()
			f = next
		}
	}
}
