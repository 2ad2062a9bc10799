package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"soma/ident"
	"soma/internal/cli/exit"
	"soma/internal/cli/plain"
	"soma/wire"
)

// shellPoll is the pause between two looks at what a shell command has printed.
const shellPoll = 150 * time.Millisecond

// shellLine is the command of an input that is one for the shell: it begins with an exclamation mark.
func shellLine(text string) (string, bool) {
	command, ok := strings.CutPrefix(strings.TrimSpace(text), "!")
	return strings.TrimSpace(command), ok
}

// runShell runs a command of the person in a session's workspace, and prints what that prints until it has ended.
func (a *app) runShell(ctx context.Context, session, command string) error {
	if command == "" {
		return exit.Faultf(exit.Usage, "write it as '!command'", "cannot run nothing")
	}
	id := ident.New(time.Now()).String()
	var c wire.ShellCommand
	err := a.keep(ctx, func() (err error) {
		c, err = a.client.RunShell(ctx, session, id, wire.RunShell{Command: command})
		return err
	})
	for at, open := int64(0), false; err == nil; {
		var p wire.ShellPage
		if err = a.keep(ctx, func() (err error) { p, err = a.client.ShellOutput(ctx, session, id, at, wire.MaxShellRead); return err }); err != nil {
			break
		}
		if p.Text != "" {
			at, open = p.Offset+int64(len(p.Text)), !strings.HasSuffix(p.Text, "\n")
			if a.asJSON {
				err = a.printJSON(p)
			} else {
				_, err = io.WriteString(a.Out, p.Text)
			}
		}
		switch {
		case err != nil:
		case p.Next == nil:
			if err = a.keep(ctx, func() (err error) { c, err = a.client.ShellCommand(ctx, session, id); return err }); err == nil {
				if open && isTerminal(a.Out) {
					fmt.Fprintln(a.Out)
				}
				return a.shellEnded(c)
			}
		case p.Text == "":
			err = pause(ctx, shellPoll)
		}
	}
	if ctx.Err() != nil {
		a.say("detached; the command runs on")
		return exit.Quiet(exit.OK)
	}
	return err
}

// shellEnded says how a command has ended where that is not as it should be.
func (a *app) shellEnded(c wire.ShellCommand) error {
	if a.asJSON {
		if err := a.printJSON(c); err != nil {
			return err
		}
	} else if lost := c.Bytes - c.Kept; lost > 0 {
		a.say("%s of output were not kept", plain.Size(lost))
	}
	switch {
	case c.ExitCode != nil && *c.ExitCode == 0:
		return nil
	case a.asJSON:
	case c.ExitCode != nil:
		a.say("exit code %d", *c.ExitCode)
	default:
		a.say("%s", strings.TrimSuffix(status(c.Status)+": "+c.Note, ": "))
	}
	return exit.Quiet(exit.Failed)
}
