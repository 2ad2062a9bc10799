package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"soma/client"
	"soma/internal/cli/plain"
)

// lookingBack is the program as the commands of the rooms evidence, pykernels, retention and shell see it.
type lookingBack struct{ a *app }

func (l lookingBack) Open() error { return l.a.open() }

func (l lookingBack) Ensure(ctx context.Context) error { return l.a.ensure(ctx) }

func (l lookingBack) Keep(ctx context.Context, request func() error) error {
	return l.a.keep(ctx, request)
}

func (l lookingBack) Client() *client.Client { return l.a.client }

func (l lookingBack) JSON() bool { return l.a.asJSON }

func (l lookingBack) PrintJSON(v any) error { return l.a.printJSON(v) }

func (l lookingBack) Output() io.Writer { return l.a.Out }

func (l lookingBack) Workspace() (string, error) { return l.a.workspace() }

func (l lookingBack) Terminal() bool { return isTerminal(l.a.Out) }

func (l lookingBack) Say(format string, args ...any) { l.a.say(format, args...) }

// Ask puts a question to the person, if there is one at the terminal; only a word that begins with y means yes.
func (l lookingBack) Ask(question string) (yes, ok bool) {
	in, isFile := l.a.In.(*os.File)
	if !isFile || !isTerminal(in) || !isTerminal(l.a.Err) {
		return false, false
	}
	fmt.Fprintf(l.a.Err, "%s [y/N] ", plain.Clean(question))
	var answer string
	_, _ = fmt.Fscanln(in, &answer) // no answer means no
	return strings.HasPrefix(strings.ToLower(answer), "y"), true
}

func (l lookingBack) CompletePID(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return l.a.completePID(cmd, args, toComplete)
}
