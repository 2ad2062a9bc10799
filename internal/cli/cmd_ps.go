package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"soma/internal/cli/plain"
	"soma/wire"
)

func (a *app) cmdPs() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "list processes",
		Long:  "ps lists the processes that have not ended: state and why, model, steps, cells, tokens, cost, age and folder.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			if err := a.ensure(ctx); err != nil {
				return err
			}
			found, err := a.client.AllProcesses(ctx, wire.ProcessFilter{All: all})
			if err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(wire.List[wire.Process]{Items: append([]wire.Process{}, found...)})
			}
			_, err = io.WriteString(a.Out, processTable(found, time.Now()))
			return err
		},
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "list ended processes too")
	return cmd
}

func processTable(list []wire.Process, now time.Time) string {
	rows := [][]string{{"PID", "STATE", "REASON", "MODEL", "STEPS", "CELLS", "TOKENS", "COST", "AGE", "WORKSPACE"}}
	shared := slices.ContainsFunc(list, func(p wire.Process) bool { return p.Node != "" })
	if shared {
		rows[0] = append(rows[0], "NODE")
	}
	for _, p := range list {
		rows = append(rows, []string{
			fmt.Sprint(p.PID), p.State.State, cmp.Or(brief(p), "-"), cmp.Or(plain.Clean(p.Model), "-"), fmt.Sprint(p.Steps),
			fmt.Sprint(p.Cells), fmt.Sprint(p.Tokens), plain.CostAbout(p.Cost, p.Estimated), plain.Age(now.Sub(p.CreatedAt)), plain.Clean(p.Workspace),
		})
		if shared {
			rows[len(rows)-1] = append(rows[len(rows)-1], cmp.Or(plain.Clean(p.Node), "-"))
		}
	}
	return plain.Table(rows, map[int]bool{0: true, 4: true, 5: true, 6: true, 7: true, 8: true})
}

// brief is why a process stands where it does, in one short line.
func brief(p wire.Process) string {
	text := p.Reason
	if p.ExitCode != nil && *p.ExitCode != 0 {
		text = fmt.Sprintf("%s (%d)", cmp.Or(text, "ended"), *p.ExitCode)
	}
	if p.Detail != "" {
		text += ": " + p.Detail
	}
	const most = 60
	text = strings.ReplaceAll(plain.Clean(text), "\n", " ")
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most-1]) + "…"
	}
	return text
}
