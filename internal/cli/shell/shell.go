package shell

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"soma/client"
	"soma/internal/cli/exit"
	"soma/internal/cli/plain"
	"soma/wire"
)

// poll is the pause between two looks at what a command has printed.
const poll = 150 * time.Millisecond

// Program is what the room needs of the program that it is a part of.
type Program interface {
	// Keep makes a request that may be repeated until a daemon has answered it.
	Keep(ctx context.Context, request func() error) error
	Client() *client.Client
	// JSON reports whether JSON was asked for; PrintJSON writes a value as one line of it.
	JSON() bool
	PrintJSON(v any) error
	Output() io.Writer
	// Terminal reports whether the output is a terminal.
	Terminal() bool
	// Say writes one line to the person, beside the output.
	Say(format string, args ...any)
}

// Line returns the command of an input that is one for the shell: it begins with an exclamation mark.
func Line(text string) (string, bool) {
	command, ok := strings.CutPrefix(strings.TrimSpace(text), "!")
	return strings.TrimSpace(command), ok
}

// Run runs a command of the person in a session's workspace, under a new id, and prints what that prints until it has ended. Its
// error is the exit code of the program; an end of ctx detaches.
func Run(ctx context.Context, a Program, session, id, command string) error {
	if command == "" {
		return exit.Faultf(exit.Usage, "write it as '!command'", "cannot run nothing")
	}
	var c wire.ShellCommand
	err := a.Keep(ctx, func() (err error) {
		c, err = a.Client().RunShell(ctx, session, id, wire.RunShell{Command: command})
		return err
	})
	for at, open := int64(0), false; err == nil; {
		var p wire.ShellPage
		if err = a.Keep(ctx, func() (err error) {
			p, err = a.Client().ShellOutput(ctx, session, id, at, wire.MaxShellRead)
			return err
		}); err != nil {
			break
		}
		if p.Text != "" {
			at, open = p.Offset+int64(len(p.Text)), !strings.HasSuffix(p.Text, "\n")
			if a.JSON() {
				err = a.PrintJSON(p)
			} else {
				_, err = io.WriteString(a.Output(), p.Text)
			}
		}
		switch {
		case err != nil:
		case p.Next == nil:
			if err = a.Keep(ctx, func() (err error) { c, err = a.Client().ShellCommand(ctx, session, id); return err }); err == nil {
				if open && a.Terminal() {
					_, _ = fmt.Fprintln(a.Output())
				}
				return tell(a, c)
			}
		case p.Text == "":
			select {
			case <-time.After(poll):
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
	}
	if ctx.Err() != nil {
		a.Say("detached; the command runs on")
		return exit.Quiet(exit.OK)
	}
	return err
}

// tell says how a command has ended where that is not as it should be.
func tell(a Program, c wire.ShellCommand) error {
	if a.JSON() {
		if err := a.PrintJSON(c); err != nil {
			return err
		}
	} else if lost := c.Bytes - c.Kept; lost > 0 {
		a.Say("%s of output were not kept", plain.Size(lost))
	}
	switch {
	case c.ExitCode != nil && *c.ExitCode == 0:
		return nil
	case a.JSON():
	case c.ExitCode != nil:
		a.Say("exit code %d", *c.ExitCode)
	case c.Status == "unknown":
		a.Say("the result is unknown: %s", c.Note)
	default:
		a.Say("%s", strings.TrimSuffix(strings.ReplaceAll(c.Status, "_", " ")+": "+c.Note, ": "))
	}
	return exit.Quiet(exit.Failed)
}
