package retention

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"soma/internal/cli/plain"
	"soma/wire"
)

func cmdRemove(p Program) *cobra.Command {
	var yes, force bool
	cmd := &cobra.Command{
		Use:   "rm SESSION|PID...",
		Short: "remove sessions with all that is theirs",
		Long: "rm removes a session for good: its processes, conversation, inputs, cells with their outputs, events and journals. A PID names\n" +
			"the session of that process. What it has cost stays in the totals, its files in the workspace are not touched, and its id is never\n" +
			"used again. A session in use is refused, unless --force ends it first.\n" +
			"Once begun a removal goes on in the daemon, whatever happens to it or to this command.",
		Example:           "  soma rm 12\n  soma rm --force --yes py-0000000000ab1c2d3e4f5g6h7j",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: p.CompletePID,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if err := p.Ensure(ctx); err != nil {
				return err
			}
			var ids []string
			for _, arg := range args {
				s, err := find(ctx, p, arg)
				if err != nil {
					return err
				}
				if slices.Contains(ids, s.ID) {
					continue
				}
				if err := sure(p, yes, "remove session %s of %s?", plain.Clean(s.ID), plain.Clean(s.Workspace)); err != nil {
					return err
				}
				ids = append(ids, s.ID)
			}
			var first error
			for _, id := range ids {
				r, err := finish(ctx, p, id, wire.Remove{Force: force})
				switch {
				case err == nil && p.JSON():
					err = p.PrintJSON(r)
				case err == nil:
					_, err = fmt.Fprintf(p.Output(), "removed session %s\n", plain.Clean(id))
				}
				if err != nil && len(ids) > 1 {
					p.Say("cannot remove session %s: %v", id, err)
				}
				first = cmp.Or(first, err)
				if ctx.Err() != nil {
					break
				}
			}
			return first
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&force, "force", false, "end what runs in it first")
	return cmd
}

// find returns the session that a person means.
func find(ctx context.Context, p Program, arg string) (s wire.Session, err error) {
	id := arg
	if pid, err := strconv.ParseUint(arg, 10, 63); err == nil && pid > 0 {
		var proc wire.Process
		if err := p.Keep(ctx, func() (err error) { proc, err = p.Client().Process(ctx, pid); return err }); err != nil {
			return s, err
		}
		id = proc.Session
	}
	err = p.Keep(ctx, func() (err error) { s, err = p.Client().Session(ctx, id); return err })
	return s, err
}
