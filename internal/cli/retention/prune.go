package retention

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"soma/internal/cli/exit"
	"soma/internal/cli/plain"
	"soma/internal/config"
	"soma/wire"
)

func cmdPrune(p Program) *cobra.Command {
	var yes, dry bool
	var older string
	cmd := &cobra.Command{
		Use:   "prune --older-than SPAN",
		Short: "remove sessions that were not used for long",
		Long: "prune removes, as rm does, every session in which nothing runs and nothing has happened for so long. With --dry-run it shows\n" +
			"which they are and removes nothing. The setting retention does the same by itself, all the time.",
		Example: "  soma prune --older-than 90d --dry-run\n  soma prune --older-than 36h --yes",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			if older == "" {
				return exit.Faultf(exit.Usage, "give --older-than, such as 90d", "cannot tell how old sessions have to be")
			}
			span, err := config.ParseSpan(older)
			if err != nil {
				return exit.Faultf(exit.Usage, "", "cannot use --older-than: %w", err)
			}
			if err := p.Ensure(ctx); err != nil {
				return err
			}
			before := time.Now().Add(-span).UTC()
			var found []wire.Pruned
			rows := int64(0)
			if err := each(ctx, p, wire.Prune{Before: before, DryRun: true, Limit: wire.MaxPrune}, func(s wire.Pruned) error {
				found = append(found, s)
				rows += s.Rows
				return nil
			}); err != nil {
				return err
			}
			switch {
			case dry && p.JSON():
				return p.PrintJSON(wire.List[wire.Pruned]{Items: append([]wire.Pruned{}, found...)})
			case dry:
				_, err := io.WriteString(p.Output(), table(found, rows))
				return err
			case len(found) == 0:
				return report(p, nil, 0)
			}
			if err := sure(p, yes, "remove %d sessions with %d rows, not used for %s?", len(found), rows, older); err != nil {
				return err
			}
			var done []wire.Pruned
			told := time.Now()
			err = each(ctx, p, wire.Prune{Before: before}, func(s wire.Pruned) error {
				if s.State == wire.Elsewhere || s.State == wire.Removing {
					r, err := finish(ctx, p, s.Session, wire.Remove{Before: &before})
					if err != nil {
						return err
					}
					s.State = r.State
				}
				done = append(done, s)
				if time.Since(told) > tellEvery {
					told = time.Now()
					p.Say("removed %d of %d sessions", len(done), len(found))
				}
				return nil
			})
			if err != nil {
				return err
			}
			return report(p, done, len(found))
		},
	}
	cmd.Flags().StringVar(&older, "older-than", "", "how long nothing has happened in them, such as 90d or 36h")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "show them only")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// each goes through the sessions of a prune, page by page.
func each(ctx context.Context, p Program, r wire.Prune, fn func(wire.Pruned) error) error {
	for {
		var page wire.List[wire.Pruned]
		if err := p.Keep(ctx, func() (err error) { page, err = p.Client().Prune(ctx, r); return err }); err != nil {
			return err
		}
		for _, s := range page.Items {
			if err := fn(s); err != nil {
				return err
			}
		}
		if page.Next == "" {
			return nil
		}
		r.After = page.Next
	}
}

func table(found []wire.Pruned, rows int64) string {
	if len(found) == 0 {
		return "nothing would be removed\n"
	}
	lines := [][]string{{"SESSION", "KIND", "USED", "ROWS", "WORKSPACE"}}
	now := time.Now()
	for _, s := range found {
		lines = append(lines, []string{plain.Clean(s.Session), s.Kind, plain.Age(now.Sub(s.UsedAt)), fmt.Sprint(s.Rows), plain.Clean(s.Workspace)})
	}
	return plain.Table(lines, map[int]bool{2: true, 3: true}) + fmt.Sprintf("%d sessions with %d rows would be removed\n", len(found), rows)
}

func report(p Program, done []wire.Pruned, found int) error {
	if p.JSON() {
		return p.PrintJSON(wire.List[wire.Pruned]{Items: append([]wire.Pruned{}, done...)})
	}
	removed, rows := 0, int64(0)
	for _, s := range done {
		if s.State == wire.Removed {
			removed++
			rows += s.Rows
		}
	}
	text := "nothing to remove"
	if found > 0 {
		text = fmt.Sprintf("removed %d sessions with %d rows", removed, rows)
	}
	if stay := found - removed; stay > 0 {
		text += fmt.Sprintf("; %d were used meanwhile and stay", stay)
	}
	_, err := fmt.Fprintln(p.Output(), text)
	return err
}
