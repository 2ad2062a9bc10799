package cli

import (
	"context"

	"github.com/spf13/cobra"

	"soma/internal/cli/doctor"
	"soma/internal/config"
	"soma/internal/pypath"
)

// checking is the program as the room doctor sees it.
type checking struct{ lookingBack }

func (a *app) cmdDoctor() *cobra.Command { return doctor.Command(checking{lookingBack{a}}) }

func (c checking) Home() config.Home { return c.a.home }

func (c checking) Config() (*config.Config, error) { return c.a.config(nil) }

func (c checking) Env() config.Env { return c.a.env }

func (c checking) Workspace() (string, error) { return c.a.workspace() }

func (c checking) FindPython(ctx context.Context, configured, folder string) (pypath.Interpreter, error) {
	return c.a.findPython(ctx, "", configured, folder)
}

func (c checking) UnitFile() (string, error) { return c.a.unitFile() }

func (c checking) Reachable(names, variables []string) []string { return reachable(names, variables) }
