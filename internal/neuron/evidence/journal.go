package evidence

import (
	"context"

	"soma/internal/feed"
	"soma/internal/neuron"
	"soma/wire"
)

// Journal returns up to limit entries of a neuron's feed after a sequence. Errors: *wire.Error with bad_request for what names
// no neuron, not_found for a neuron without any entry, or the store's.
func (e *Evidence) Journal(ctx context.Context, id, feedName string, after uint64, limit int) (wire.Journal, error) {
	n, f, err := journalOf(id, feedName)
	if err != nil {
		return wire.Journal{}, err
	}
	p, err := e.o.Engine.Read(ctx, n, f, after, limit)
	if err != nil {
		return wire.Journal{}, err
	}
	if p.Last == 0 {
		if err := e.known(ctx, n); err != nil {
			return wire.Journal{}, err
		}
	}
	j := wire.Journal{Neuron: id, Feed: feedName, Reset: p.Reset, First: p.First, Last: p.Last, Tallies: tallies(p.Tallies), Entries: []wire.JournalEntry{}}
	for i := range p.Entries {
		j.Entries = append(j.Entries, entryOf(p.Seqs[i], &p.Entries[i]))
	}
	return j, nil
}

// known reports with a not_found that a neuron has never had a delivery.
func (e *Evidence) known(ctx context.Context, n neuron.ID) error {
	in, err := e.o.Engine.Read(ctx, n, neuron.In, 0, 1)
	if err == nil && in.Last == 0 {
		err = wire.Errorf(wire.NotFound, "cannot show the journal of %s: it was never given anything", n).Do("see soma ps -a")
	}
	return err
}

func tallies(m map[string]uint64) map[string]uint64 {
	if m == nil {
		return map[string]uint64{}
	}
	return m
}

// journalFollower is one follower.
type journalFollower struct {
	w          *feed.Watcher[neuron.Entry]
	generation string
}

// FollowJournal follows a feed after a cursor: what is kept, then what comes. The caller closes the follower. Errors as for
// Journal, but that a neuron may be followed before its first delivery.
func (e *Evidence) FollowJournal(id, feedName string, after wire.Cursor) (interface {
	Next(ctx context.Context) (wire.JournalItem, error)
	Close()
}, error) {
	n, f, err := journalOf(id, feedName)
	if err != nil {
		return nil, err
	}
	return &journalFollower{e.o.Engine.Watch(n, f, feed.Cursor{Generation: after.Generation, Seq: after.Seq}), e.o.Generation}, nil
}

// Next returns the next item, or ctx's error when that ends first; feed.ErrClosed when the engine has stopped.
func (f *journalFollower) Next(ctx context.Context) (item wire.JournalItem, err error) {
	ev, err := f.w.Next(ctx)
	switch {
	case err != nil:
	case ev.Reset != nil:
		item.Reset = &wire.JournalReset{Generation: f.generation, First: ev.Reset.First, Last: ev.Reset.Last, Tallies: tallies(ev.Reset.Tallies)}
	default:
		entry := entryOf(ev.Seq, &ev.Value)
		item.Entry = &entry
	}
	return item, err
}

// Close ends the follower.
func (f *journalFollower) Close() { f.w.Close() }

func journalOf(id, feedName string) (neuron.ID, neuron.Feed, error) {
	n, err := neuron.ParseID(id)
	if err != nil {
		return n, 0, wire.Errorf(wire.BadRequest, "cannot show a journal: %.256q names no neuron", id).Do("write it as OWNER/KIND/KEY, such as me/process/1")
	}
	switch feedName {
	case wire.FeedIn:
		return n, neuron.In, nil
	case wire.FeedOut:
		return n, neuron.Out, nil
	}
	return n, 0, wire.Errorf(wire.BadRequest, "a feed is in or out")
}

func entryOf(seq uint64, e *neuron.Entry) wire.JournalEntry {
	w := wire.JournalEntry{
		Seq: seq, ID: e.ID.String(), Alias: e.Alias, Caller: e.Caller.String(), Target: e.Target.String(), Correlation: text(e.Correlation),
		Causation: text(e.Causation), Depth: e.Depth, At: e.At.UTC(), Signal: e.Lane == neuron.Signal, Attempts: e.Attempts,
		Refused: string(e.Settled), Content: text(e.Content), Payload: e.Payload,
	}
	if !e.Handled.IsZero() {
		at := e.Handled.UTC()
		w.HandledAt = &at
	}
	w.Via = text(e.Via)
	if e.Emitted != nil {
		w.Receivers = &e.Emitted.Receivers
	}
	if e.Protected {
		w.Protected, w.Payload, w.Content = true, nil, ""
	}
	if e.Request != nil {
		w.Request = text(e.Request.ID)
	}
	if e.Ended != nil {
		w.Ended = &wire.JournalEnded{ID: e.Ended.ID.String(), Target: e.Ended.Target.String(), Code: string(e.Ended.Code)}
	}
	return w
}
