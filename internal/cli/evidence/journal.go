package evidence

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"soma/client"
	"soma/internal/cli/exit"
	"soma/internal/cli/plain"
	"soma/wire"
)

func cmdJournal(p Program) *cobra.Command {
	var out, follow bool
	var after uint64
	cmd := &cobra.Command{
		Use:   "journal NEURON | journal PID",
		Short: "print what a neuron was given, or what it sent",
		Long: "journal prints the incoming feed of a neuron, or its outgoing one: each delivery with its sequence, where it came from or\n" +
			"went, and how it ended if it was refused. A neuron is OWNER/KIND/KEY, KIND/KEY, or a pid for that process. The newest 512\n" +
			"entries are kept; where older ones are gone, the gap and the tallies of all that ever were are shown.",
		Example:           "  soma journal 1\n  soma journal --out session/work\n  soma journal -f --after 100 me/process/1",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.CompletePID,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			j := &journal{p: p, neuron: neuronOf(args[0]), feed: wire.FeedIn, after: after}
			if out {
				j.feed = wire.FeedOut
			}
			if err := p.Ensure(ctx); err != nil {
				return err
			}
			if follow {
				return j.follow(ctx)
			}
			return j.print(ctx)
		},
	}
	cmd.Flags().BoolVar(&out, "out", false, "what it sent, and what became of that where it was not handled")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what comes")
	cmd.Flags().Uint64Var(&after, "after", 0, "begin after the entry with this sequence `N`")
	return cmd
}

// journal prints one feed.
type journal struct {
	p      Program
	neuron string
	feed   string
	after  uint64
}

func (j *journal) print(ctx context.Context) error {
	var page wire.Journal
	err := j.p.Keep(ctx, func() (err error) {
		page, err = j.p.Client().Journal(ctx, j.neuron, j.feed, j.after, wire.MaxLimit)
		return err
	})
	if err != nil {
		return err
	}
	if j.p.JSON() {
		return j.p.PrintJSON(page)
	}
	kept := page.Last + 1 - page.First
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s: %d so far, %d kept\n", plain.Clean(page.Neuron), page.Feed, page.Last, kept)
	if len(page.Tallies) > 0 {
		fmt.Fprintf(&b, "tallies: %s\n", talliesText(page.Tallies))
	}
	if len(page.Entries) > 0 || page.Reset {
		b.WriteString(j.head())
	}
	if page.Reset {
		b.WriteString(gapLine(j.after+1, page.First))
	}
	for i := range page.Entries {
		b.WriteString(j.line(&page.Entries[i]))
	}
	_, err = io.WriteString(j.p.Output(), b.String())
	return err
}

// follow prints what is kept and then what comes, through the death of daemons, until it is interrupted.
func (j *journal) follow(ctx context.Context) error {
	at := wire.Cursor{Seq: j.after}
	if !j.p.JSON() {
		if _, err := io.WriteString(j.p.Output(), j.head()); err != nil {
			return err
		}
	}
	err := j.p.Keep(ctx, func() (err error) {
		at, err = j.p.Client().FollowJournal(ctx, j.neuron, j.feed, at, func(f client.JournalFrame) error { return j.frame(at.Seq, f) })
		return err
	})
	return exit.Stopped(err, "soma journal -f --after %d %s", at.Seq, j.neuron)
}

// frame prints what a stream brings; last is the sequence before it when the stream began.
func (j *journal) frame(last uint64, f client.JournalFrame) error {
	var text string
	switch {
	case j.p.JSON() && f.Reset != nil:
		return j.p.PrintJSON(map[string]any{"kind": wire.Reset, "body": f.Reset})
	case j.p.JSON():
		return j.p.PrintJSON(f.Entry)
	case f.Reset != nil:
		text = gapLine(last+1, f.Reset.First)
		if len(f.Reset.Tallies) > 0 {
			text += fmt.Sprintf("        tallies: %s\n", talliesText(f.Reset.Tallies))
		}
	default:
		text = j.line(f.Entry)
	}
	_, err := io.WriteString(j.p.Output(), text)
	return err
}

// gapLine tells of entries that are not kept any more, from one sequence up to the first that is.
func gapLine(from, first uint64) string {
	if first <= from { // another generation: nobody knows what was there
		return "        (the database is another one: this is its journal)\n"
	}
	return fmt.Sprintf("        (%d to %d are not kept any more)\n", from, first-1)
}

func talliesText(m map[string]uint64) string {
	var all []string
	for _, alias := range slices.Sorted(maps.Keys(m)) {
		all = append(all, fmt.Sprintf("%s %d", plain.Clean(alias), m[alias]))
	}
	return strings.Join(all, ", ")
}

const entryForm = "%6s  %-23s  %-26s  %-26s  %-20s  %s\n"

func (j *journal) head() string {
	peer := "FROM"
	if j.feed == wire.FeedOut {
		peer = "TO"
	}
	return fmt.Sprintf(entryForm, "SEQ", "AT", "ALIAS", "ID", peer, "NOTE")
}

// line is one entry.
func (j *journal) line(e *wire.JournalEntry) string {
	peer := cmp.Or(e.Caller, "outside")
	switch {
	case j.feed == wire.FeedOut:
		peer = cmp.Or(e.Target, "-")
	case e.Caller == e.Target:
		peer = "itself"
	}
	text := fmt.Sprintf(entryForm, fmt.Sprint(e.Seq), day(e.At), plain.Clean(e.Alias), e.ID, plain.Clean(peer), entryNote(e))
	return strings.TrimRight(text, " \n") + "\n"
}

// entryNote tells what is out of the ordinary about an entry.
func entryNote(e *wire.JournalEntry) string {
	var notes []string
	if e.Refused != "" {
		notes = append(notes, "refused: "+e.Refused)
	}
	if e.Ended != nil {
		notes = append(notes, fmt.Sprintf("%s was not handled: %s", e.Ended.ID, e.Ended.Code))
	}
	if e.Receivers != nil {
		notes = append(notes, fmt.Sprintf("emitted to %d", *e.Receivers))
	}
	if e.Via != "" {
		notes = append(notes, "via "+e.Via)
	}
	if e.Request != "" {
		notes = append(notes, "call "+e.Request)
	}
	if e.Protected {
		notes = append(notes, "protected")
	}
	if e.Attempts > 1 {
		notes = append(notes, fmt.Sprintf("at attempt %d", e.Attempts))
	}
	if e.Signal {
		notes = append(notes, "signal")
	}
	if e.Depth > 0 {
		notes = append(notes, fmt.Sprintf("hop %d", e.Depth))
	}
	return plain.Clean(strings.Join(notes, ", "))
}
