package evidence

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"soma/internal/cli/exit"
	"soma/internal/cli/plain"
	"soma/wire"
)

func cmdDeadLetters(p Program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "deadletters",
		Short: "list, re-drive or discard deliveries that ended without being handled",
		Long: "deadletters lists the deliveries that were given up or that this build could not handle: why, after how many attempts, and\n" +
			"to which neuron they went. They stay until they are re-driven or discarded. soma trace ID tells how one came about.",
		Example: "  soma deadletters\n  soma deadletters redrive --all\n  soma deadletters discard 06h2r2e8mm0046gch7me53r000",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			if err := p.Ensure(ctx); err != nil {
				return err
			}
			if p.JSON() {
				list := wire.List[wire.DeadLetter]{Items: []wire.DeadLetter{}}
				if err := eachLetter(ctx, p, func(d wire.DeadLetter) { list.Items = append(list.Items, d) }); err != nil {
					return err
				}
				return p.PrintJSON(list)
			}
			rows := [][]string{{"ID", "ENDED", "CODE", "ATTEMPTS", "ALIAS", "TARGET", "ERROR"}}
			now := time.Now()
			err := eachLetter(ctx, p, func(d wire.DeadLetter) {
				rows = append(rows, []string{
					d.ID, plain.Age(now.Sub(d.EndedAt)), d.Code, fmt.Sprint(d.Attempts), plain.Clean(d.Alias), plain.Clean(d.Target),
					cmp.Or(oneLine(plain.Clean(d.Error), 80), "-"),
				})
			})
			if err != nil {
				return err
			}
			_, err = io.WriteString(p.Output(), plain.Table(rows, map[int]bool{1: true, 3: true}))
			return err
		},
	}
	cmd.AddCommand(
		cmdEach(p, "redrive", "send dead letters again",
			"redrive sends each delivery again, under a new id and with its idempotency key kept: after an upgrade that has the missing\n"+
				"handler, or when what made it fail has gone. One that fails again becomes a dead letter again.",
			func(ctx context.Context, id string) (any, string, error) {
				r, err := p.Client().Redrive(ctx, id)
				return r, fmt.Sprintf("%s goes again as %s", r.ID, r.As), err
			}),
		cmdEach(p, "discard", "delete dead letters",
			"discard deletes dead letters for good. What the journals hold of them stays.",
			func(ctx context.Context, id string) (any, string, error) {
				return wire.Discarded{ID: id}, id + " is discarded", p.Client().Discard(ctx, id)
			}),
	)
	return cmd
}

// cmdEach is a command that does something with each of some dead letters, or with all.
func cmdEach(p Program, name, short, long string, do func(ctx context.Context, id string) (result any, words string, err error)) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   name + " ID... | " + name + " --all",
		Short: short,
		Long:  long,
		RunE: func(cmd *cobra.Command, ids []string) error {
			ctx := cmd.Context()
			if all == (len(ids) > 0) {
				return exit.Faultf(exit.Usage, "give ids or --all", "cannot tell which dead letters are meant")
			}
			if err := p.Ensure(ctx); err != nil {
				return err
			}
			if all {
				// All ids first: what dies again while this goes on is not met twice.
				if err := eachLetter(ctx, p, func(d wire.DeadLetter) { ids = append(ids, d.ID) }); err != nil {
					return err
				}
				if len(ids) == 0 {
					p.Say("there are no dead letters")
				}
			}
			var first error
			for _, id := range ids {
				result, words, err := do(ctx, id)
				switch {
				case err == nil && p.JSON():
					err = p.PrintJSON(result)
				case err == nil:
					_, err = fmt.Fprintln(p.Output(), words)
				}
				switch {
				case err == nil:
				case first == nil:
					first = err // the program ends with it
				default:
					p.Say("%v", exit.As(err))
				}
				if ctx.Err() != nil {
					break
				}
			}
			return first
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "all that there are now")
	return cmd
}

// eachLetter goes through all dead letters, page by page.
func eachLetter(ctx context.Context, p Program, fn func(wire.DeadLetter)) error {
	for after := ""; ; {
		page, err := p.Client().DeadLetters(ctx, after, 0)
		if err != nil {
			return err
		}
		for _, d := range page.Items {
			fn(d)
		}
		if page.Next == "" {
			return nil
		}
		after = page.Next
	}
}
