package cli

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"soma/internal/cli/exit"
	"soma/internal/cli/manual"
)

func (a *app) cmdMan() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "write the man pages into a folder",
		Long:  "man writes one page for each command, soma-run.1 and so on, into a folder, such as ~/.local/share/man/man1.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return exit.Faultf(exit.BadFile, "", "cannot write the man pages: %w", err)
			}
			var exits []manual.Exit
			for _, e := range exit.Codes {
				exits = append(exits, manual.Exit{Code: e.Code, Means: e.Means})
			}
			for _, c := range manual.Commands(cmd.Root()) {
				name := filepath.Join(args[0], manual.PageName(c)+".1")
				if err := os.WriteFile(name, []byte(manual.Page(c, exits)), 0o644); err != nil {
					return exit.Faultf(exit.BadFile, "", "cannot write the man pages: %w", err)
				}
			}
			return nil
		},
	}
}
