package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"soma/ident"
	"soma/wire"
)

func (a *app) cmdSend() *cobra.Command {
	var after bool
	var file string
	cmd := &cobra.Command{
		Use:   "send PID TEXT | send PID -f FILE | send PID -",
		Short: "say something to a process",
		Long: "send gives a process an input. It steers: it joins the conversation before the next call of the model. With --after it\n" +
			"is a follow-up and joins when the current agent turn has ended.",
		Args: cobra.MinimumNArgs(1),
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
			if p.ExitCode != nil {
				return faultf(exitRefused, "start another with soma run", "cannot send to process %d: it has ended", p.PID)
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
			if after {
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
		Use:   "wait PID",
		Short: "wait until a process has ended",
		Long:  "wait returns when the process has ended, with the process's exit code.",
		Args:  cobra.ExactArgs(1),
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
			for p.ExitCode == nil {
				err := a.keep(ctx, func() (err error) { p, err = a.client.Wait(ctx, pid, wire.MaxWait); return err })
				if err != nil {
					return stopped(err, "soma wait %d", pid)
				}
			}
			if err := a.printProcess(p); err != nil {
				return err
			}
			return exitCode(*p.ExitCode)
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

var signals = map[string]struct{ signal, short, long string }{
	"interrupt": {wire.Interrupt, "end the current agent turn of a process", "The process then waits for input; cells that run are interrupted."},
	"pause":     {wire.Pause, "let a process rest", "It finishes what it is doing and starts nothing new until soma resume."},
	"resume":    {wire.Resume, "let a process go on", "After pause, after an interruption, or after crashes."},
	"kill":      {wire.Terminate, "end a process", "Its exit code is 137 and its python kernel ends with it."},
}

func (a *app) cmdSignal(verb string) *cobra.Command {
	s := signals[verb]
	return &cobra.Command{
		Use:   verb + " PID",
		Short: s.short,
		Long:  verb + ": " + s.short + ". " + s.long,
		Args:  cobra.ExactArgs(1),
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
			return a.printProcess(p)
		},
	}
}
