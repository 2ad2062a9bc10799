package retention

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"soma/client"
	"soma/internal/cli/exit"
	"soma/wire"
)

// Program is what the commands need of the program that they are a part of.
type Program interface {
	// Ensure starts a daemon if none answers.
	Ensure(ctx context.Context) error
	// Keep makes a request that may be repeated until a daemon has answered it.
	Keep(ctx context.Context, request func() error) error
	Client() *client.Client
	// JSON reports whether JSON was asked for; PrintJSON writes a value as one line of it.
	JSON() bool
	PrintJSON(v any) error
	Output() io.Writer
	// Say writes one line to the person, beside the output.
	Say(format string, args ...any)
	// Ask puts a question to the person; ok is false where nobody can be asked.
	Ask(question string) (yes, ok bool)
	// CompletePID proposes the processes that have not ended.
	CompletePID(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective)
}

// Commands returns the commands of this room.
func Commands(p Program) []*cobra.Command { return []*cobra.Command{cmdRemove(p), cmdPrune(p)} }

// sure asks the person, unless he has said yes already.
func sure(p Program, yes bool, format string, args ...any) error {
	if yes {
		return nil
	}
	yes, ok := p.Ask(fmt.Sprintf(format, args...))
	switch {
	case !ok:
		return exit.Faultf(exit.Usage, "say --yes", "cannot ask whether to remove it: this is no terminal")
	case !yes:
		return exit.Faultf(exit.Refused, "", "cannot go on: nothing was removed")
	}
	return nil
}

// tellEvery is the pause between two words on how far a removal is.
const tellEvery = 2 * time.Second

// finish removes a session, and tells now and then how far that is. When it ends early the daemon goes on all the same.
func finish(ctx context.Context, p Program, session string, r wire.Remove) (done wire.Removal, err error) {
	told := time.Now()
	for done.State != wire.Removed {
		ended := make(chan error, 1)
		var now wire.Removal
		go func() {
			ended <- p.Keep(ctx, func() (err error) { now, err = p.Client().RemoveSession(ctx, session, r); return err })
		}()
		for waits := true; waits; {
			select {
			case err = <-ended:
				waits = false
			case <-time.After(time.Until(told.Add(tellEvery))):
				told = time.Now()
				if far, err := p.Client().Removal(ctx, session); err == nil && far.State == wire.Removing && far.Rows > 0 {
					p.Say("removing session %s: %d of %d rows", session, far.Done, far.Rows)
				}
			}
		}
		if err != nil {
			return done, err
		}
		done = now
	}
	return done, nil
}
