package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"soma/ident"
	"soma/internal/cli/exit"
	"soma/internal/cli/shell"
	"soma/wire"
)

func (a *app) cmdSend() *cobra.Command {
	var after bool
	var file string
	cmd := &cobra.Command{
		Use:   "send PID TEXT | send PID '!COMMAND' | send PID -f FILE | send PID -",
		Short: "say something to a process",
		Long: "send gives a process an input. It steers: it joins the conversation before the next call of the model. With --after it\n" +
			"is a follow-up and joins when the current agent turn has ended. A text that begins with ! is no input: it is a command that\n" +
			"the daemon runs in the workspace of the process, for you, and whose output is printed; the agent can read it.",
		Example:           "  soma send 3 \"and plot it\"\n  soma send 3 '!git status'",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completePID,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			text, err := a.inputText(args[1:], file)
			if err != nil {
				return err
			}
			if _, err := parsePID(args[0]); err != nil {
				return err
			}
			if err := a.ensure(ctx); err != nil {
				return err
			}
			s, p, err := a.byPID(ctx, args[0])
			if err != nil {
				return err
			}
			if command, ok := shell.Line(text); ok && file == "" {
				return shell.Run(ctx, lookingBack{a}, s.ID, ident.New(time.Now()).String(), command)
			}
			if p.ExitCode != nil {
				return exit.Faultf(exit.Refused, "start another with soma run", "cannot send to process %d: it has ended", p.PID)
			}
			in := wire.Input{Text: text, Mode: wire.Steer}
			if after {
				in.Mode = wire.After
			}
			id := ident.New(time.Now()).String()
			var state wire.InputState
			err = a.keep(ctx, func() (err error) { state, err = a.client.Admit(ctx, s.ID, id, in); return err })
			if err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(state)
			}
			when := "it joins before the next call of the model"
			switch {
			case waitsForInput(*p):
				when = "it begins a turn with it"
			case p.Reason == "paused":
				when = "it is paused; go on with soma resume"
			case after:
				when = "it joins when the current turn has ended"
			}
			_, err = fmt.Fprintf(a.Out, "process %d has it; %s\n", state.PID, when)
			return err
		},
	}
	cmd.Flags().BoolVar(&after, "after", false, "a follow-up, for when the current agent turn has ended")
	cmd.Flags().StringVarP(&file, "file", "f", "", "read the text from `FILE`")
	return cmd
}

func (a *app) cmdWait() *cobra.Command {
	return &cobra.Command{
		Use:               "wait PID",
		Short:             "wait until a process has ended",
		Long:              "wait returns when the process has ended, with the process's exit code.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completePID,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			pid, err := parsePID(args[0])
			if err != nil {
				return err
			}
			if err := a.ensure(ctx); err != nil {
				return err
			}
			var p wire.Process
			err = a.keep(ctx, func() (err error) { p, err = a.client.Process(ctx, pid); return err })
			if err != nil {
				return exit.Stopped(err, "soma wait %d", pid)
			}
			for said := false; p.ExitCode == nil; {
				if waitsForInput(p) && !said {
					said = true
					a.say(needsInput, pid, pid, pid)
				}
				err := a.keep(ctx, func() (err error) { p, err = a.client.Wait(ctx, pid, wire.MaxWait); return err })
				if err != nil {
					return exit.Stopped(err, "soma wait %d", pid)
				}
			}
			if err := a.printProcess(p); err != nil {
				return err
			}
			return exit.Quiet(*p.ExitCode)
		},
	}
}

// printProcess says where a process stands, in one line.
func (a *app) printProcess(p wire.Process) error {
	if a.asJSON {
		return a.printJSON(p)
	}
	text := fmt.Sprintf("process %d: %s", p.PID, p.State.State)
	if why := brief(p); why != "" {
		text += ", " + why
	}
	_, err := fmt.Fprintln(a.Out, text)
	return err
}

// onInput is why a process is blocked whose task is worked through.
const onInput = "waiting for input"

// needsInput takes a pid three times.
const needsInput = "process %d waits for input; go on with soma send %d \"TEXT\", or end it with soma kill %d"

var signals = map[string]struct{ signal, short, long string }{
	"interrupt": {wire.Interrupt, "end the current agent turn of a process", "interrupt ends the current agent turn of a process, and cells that run. The process then waits for input."},
	"pause":     {wire.Pause, "let a process rest", "pause lets a process finish what it is doing; it starts nothing new until soma resume."},
	"resume":    {wire.Resume, "let a process go on", "resume lets a process go on after pause, or after crashes. One that waits for input goes on with soma send."},
	"kill":      {wire.Terminate, "end a process", "kill ends a process. Its exit code is 137, and its python kernel ends with it."},
}

func (a *app) cmdSignal(verb string) *cobra.Command {
	s := signals[verb]
	return &cobra.Command{
		Use:               verb + " PID",
		Short:             s.short,
		Long:              s.long,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completePID,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			pid, err := parsePID(args[0])
			if err != nil {
				return err
			}
			if err := a.ensure(ctx); err != nil {
				return err
			}
			id := ident.New(time.Now()).String()
			var p wire.Process
			err = a.keep(ctx, func() (err error) { p, err = a.client.Signal(ctx, pid, id, s.signal); return err })
			if err != nil {
				return err
			}
			if err := a.printProcess(p); err != nil || a.asJSON {
				return err
			}
			a.sayNext(verb, p)
			return nil
		},
	}
}

// sayNext says what follows of a signal where the state alone does not tell.
func (a *app) sayNext(verb string, p wire.Process) {
	switch {
	case verb == "pause" && p.ExitCode == nil && p.Reason != "paused":
		a.say("it pauses when it has finished what it is doing now")
	case verb == "resume" && waitsForInput(p):
		a.say("it goes on with soma send %d \"TEXT\"", p.PID)
	}
}

func waitsForInput(p wire.Process) bool {
	return p.State.State == wire.Blocked && p.Reason == onInput
}
