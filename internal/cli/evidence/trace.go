package evidence

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"soma/internal/cli/plain"
	"soma/wire"
)

func cmdTrace(p Program) *cobra.Command {
	return &cobra.Command{
		Use:   "trace ID | trace PID",
		Short: "show what led to something, what followed from it, and what it cost",
		Long: "trace finds the correlation to which something belongs and prints it twice: as a tree of causes, and as a time line over all\n" +
			"neurons. Both show deliveries with their attempts and refusals, the provider's attempts with tokens and cost, calls, cells,\n" +
			"python kernels that began or ended, and what is not kept any more. ID is what any other command shows: of a delivery,\n" +
			"correlation, execution, input, cell or session; a pid means the last input of that process.",
		Example:           "  soma trace 1\n  soma trace 06h2r2e8mm0046gch7me53r000 -o json",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.CompletePID,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if err := p.Ensure(ctx); err != nil {
				return err
			}
			t, err := ask(ctx, p, args[0])
			if err != nil {
				return err
			}
			if p.JSON() {
				return p.PrintJSON(t)
			}
			_, err = io.WriteString(p.Output(), traceText(&t))
			return err
		},
	}
}

func ask(ctx context.Context, p Program, id string) (t wire.Trace, err error) {
	err = p.Keep(ctx, func() (err error) { t, err = p.Client().Trace(ctx, id); return err })
	return t, err
}

// traceText is a trace as a person reads it.
func traceText(t *wire.Trace) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s of correlation %s\n", t.Is, plain.Clean(t.Asked), t.Correlation)
	fmt.Fprintf(&b, "%s, %s, %d tokens, cost %s\n", day(t.StartedAt), took(t.EndedAt.Sub(t.StartedAt)), t.Tokens, plain.CostAbout(t.Cost, t.Estimated))
	b.WriteString("\nwhat led to what:\n\n")
	b.WriteString(treeText(t))
	b.WriteString("\nin order of time:\n\n")
	b.WriteString(lineText(t))
	for _, g := range t.Gaps {
		fmt.Fprintf(&b, "\ngap: the %s journal of %s begins with %d; what came before is not kept any more\n", g.Feed, plain.Clean(g.Neuron), g.First)
	}
	if t.Cut != "" {
		fmt.Fprintf(&b, "\nnot all was looked for: %s\n", t.Cut)
	}
	return b.String()
}
