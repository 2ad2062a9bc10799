package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"soma/internal/cli/exit"
	"soma/internal/cli/manual"
	"soma/internal/cli/plain"
	"soma/wire"
)

// completeWait bounds what a person waits for a completion.
const completeWait = time.Second

// misused is the error of a command line that was not understood, with the form that the command has.
func misused(cmd *cobra.Command, err error) error {
	var f *exit.Fault
	if errors.As(err, &f) {
		return f
	}
	do := "see soma help"
	switch {
	case !cmd.HasParent():
	case isArgsError(cmd, err):
		return exit.Faultf(exit.Usage, "write it as "+strings.Join(manual.Synopses(cmd), ", or "), "cannot understand the command line: wrong arguments")
	default:
		do = "see soma help " + strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
	}
	return exit.Faultf(exit.Usage, do, "cannot understand the command line: %w", err)
}

// isArgsError reports whether err is what the command says of its arguments.
func isArgsError(cmd *cobra.Command, err error) bool {
	own := cmd.ValidateArgs(cmd.Flags().Args())
	return own != nil && own.Error() == err.Error()
}

// known refuses the names of commands that there are not, and says which are near. The arguments are those of root or help.
func known(cmd *cobra.Command, args []string) error {
	root := cmd.Root()
	if len(args) == 0 {
		return nil
	}
	if found, rest, err := root.Traverse(args); err == nil && found != root && len(rest) == 0 {
		return nil
	}
	do := "see soma help"
	root.SuggestionsMinimumDistance = 2
	if near := root.SuggestionsFor(args[0]); len(near) > 0 {
		do = "did you mean soma " + strings.Join(near, ", or soma ") + "?"
	}
	return exit.Faultf(exit.Usage, do, "cannot find a command %q", args[0])
}

// describe lets the help of each command show its forms, and those that hold others refuse names that they do not hold.
func describe(template string, commands ...*cobra.Command) {
	for _, c := range commands {
		c.SetUsageTemplate(strings.Replace(template, "{{.UseLine}}", strings.Join(manual.Synopses(c), "\n  "), 1))
		if !c.HasSubCommands() {
			continue
		}
		c.Args = func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			name := strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
			return exit.Faultf(exit.Usage, "see soma help "+name, "cannot find a command %q", name+" "+args[0])
		}
		if c.RunE == nil {
			c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
		describe(template, c.Commands()...)
	}
}

func cmdHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "tell how a command is used",
		Args:  known,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
			if len(args) == 0 {
				for _, c := range cmd.Root().Commands() {
					if !c.IsAvailableCommand() {
						continue
					}
					names = append(names, cobra.CompletionWithDesc(c.Name(), c.Short))
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			about, _, err := cmd.Root().Find(args)
			if err != nil {
				return err
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}

func cmdCompletion() *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	return &cobra.Command{
		Use:   "completion " + strings.Join(shells, "|"),
		Short: "print the completion for a shell",
		Long: "completion prints a script that lets a shell complete commands, flags and pids. For bash write it to\n" +
			"~/.local/share/bash-completion/completions/soma, for fish to ~/.config/fish/completions/soma.fish, for zsh to a file _soma in a\n" +
			"folder of $fpath.",
		Example:   "  source <(soma completion bash)",
		ValidArgs: shells,
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			root, out := cmd.Root(), cmd.OutOrStdout()
			var err error
			switch args[0] {
			case "bash":
				err = root.GenBashCompletionV2(out, true)
			case "zsh":
				err = root.GenZshCompletion(out)
			case "fish":
				err = root.GenFishCompletion(out, true)
			default:
				err = root.GenPowerShellCompletionWithDesc(out)
			}
			if err != nil {
				return fmt.Errorf("cannot print the completion: %w", err)
			}
			return nil
		},
	}
}

// completePID proposes the processes that have not ended, if a daemon runs.
func (a *app) completePID(cmd *cobra.Command, args []string, _ string) (pids []cobra.Completion, _ cobra.ShellCompDirective) {
	if len(args) > 0 || a.open() != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completeWait)
	defer cancel()
	found, err := a.client.AllProcesses(ctx, wire.ProcessFilter{})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for _, p := range found {
		pids = append(pids, cobra.CompletionWithDesc(fmt.Sprint(p.PID), plain.Clean(p.State.State+" in "+p.Workspace)))
	}
	return pids, cobra.ShellCompDirectiveNoFileComp
}
