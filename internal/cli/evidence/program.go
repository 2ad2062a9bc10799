package evidence

import (
	"context"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"soma/client"
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
	// CompletePID proposes the processes that have not ended.
	CompletePID(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective)
}

// Commands returns the commands of this room.
func Commands(p Program) []*cobra.Command {
	return []*cobra.Command{cmdJournal(p), cmdTrace(p), cmdDeadLetters(p)}
}

// neuronOf returns the neuron that a person means by a pid, KIND/KEY or OWNER/KIND/KEY.
func neuronOf(text string) string {
	if pid, err := strconv.ParseUint(text, 10, 63); err == nil && pid > 0 {
		return wire.Owner + "/process/" + text
	}
	if strings.Count(text, "/") == 1 {
		return wire.Owner + "/" + text
	}
	return text
}

// clock is a time as a person reads it, on the day of which he knows.
func clock(at time.Time) string { return at.Local().Format("15:04:05.000") }

// day is a time with its date.
func day(at time.Time) string { return at.Local().Format("2006-01-02 15:04:05.000") }

// oneLine takes the line breaks out of a text and cuts it to at most n characters.
func oneLine(text string, n int) string {
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > n {
		return string(runes[:n-1]) + "…"
	}
	return text
}
