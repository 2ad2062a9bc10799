package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"soma/client"
)

// lookingBack is the program as the commands of room evidence see it.
type lookingBack struct{ a *app }

func (l lookingBack) Ensure(ctx context.Context) error { return l.a.ensure(ctx) }

func (l lookingBack) Keep(ctx context.Context, request func() error) error {
	return l.a.keep(ctx, request)
}

func (l lookingBack) Client() *client.Client { return l.a.client }

func (l lookingBack) JSON() bool { return l.a.asJSON }

func (l lookingBack) PrintJSON(v any) error { return l.a.printJSON(v) }

func (l lookingBack) Output() io.Writer { return l.a.Out }

func (l lookingBack) Say(format string, args ...any) { l.a.say(format, args...) }

func (l lookingBack) CompletePID(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return l.a.completePID(cmd, args, toComplete)
}
