package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"soma/client"
	"soma/wire"
)

func (w *world) DeadLetters(_ context.Context, after string, limit int) ([]wire.DeadLetter, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []wire.DeadLetter
	for _, id := range []string{"d1", "d2", "d3"} {
		if id > after && w.bodies["gone "+id] == nil {
			list = append(list, wire.DeadLetter{ID: id, Alias: "a.v1", Target: "me/process/1", Correlation: "c", Code: "no_handler",
				Attempts: 1, SentAt: epoch, EndedAt: epoch, Payload: json.RawMessage(`{"a":1}`)})
		}
	}
	return list[:min(len(list), limit)], nil
}

func (w *world) take(id string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bodies["gone "+id] != nil || !slices.Contains([]string{"d1", "d2", "d3"}, id) {
		return wire.Errorf(wire.NotFound, "there is no dead letter %s", id)
	}
	w.bodies["gone "+id] = true
	return nil
}

func (w *world) Redrive(_ context.Context, id string) (wire.Redriven, error) {
	return wire.Redriven{ID: id, As: id + "-again"}, w.take(id)
}

func (w *world) Discard(_ context.Context, id string) (wire.Discarded, error) {
	return wire.Discarded{ID: id}, w.take(id)
}

// entries are those of the one neuron that is known, of which the first two are not kept.
func entries(after uint64) (list []wire.JournalEntry) {
	for seq := max(after+1, 3); seq <= 5; seq++ {
		list = append(list, wire.JournalEntry{Seq: seq, ID: fmt.Sprint("e", seq), Alias: "a.v1", Target: "me/process/1", At: epoch})
	}
	return list
}

func (w *world) Journal(_ context.Context, neuron, feed string, after uint64, limit int) (wire.Journal, error) {
	if neuron != "me/process/1" {
		return wire.Journal{}, wire.Errorf(wire.NotFound, "neuron %s was never given anything", neuron)
	}
	list := entries(after)
	return wire.Journal{Neuron: neuron, Feed: feed, Reset: after < 2, First: 3, Last: 5, Tallies: map[string]uint64{"a.v1": 5},
		Entries: list[:min(len(list), limit)]}, nil
}

func (w *world) FollowJournal(neuron, _ string, after wire.Cursor) (interface {
	Next(ctx context.Context) (wire.JournalItem, error)
	Close()
}, error) {
	if neuron != "me/process/1" {
		return nil, wire.Errorf(wire.BadRequest, "%s names no neuron", neuron)
	}
	f := &journalOf{}
	if after.Seq < 2 {
		f.items = append(f.items, wire.JournalItem{Reset: &wire.JournalReset{Generation: w.Generation(), First: 3, Last: 5, Tallies: map[string]uint64{"a.v1": 5}}})
	}
	for _, e := range entries(after.Seq) {
		f.items = append(f.items, wire.JournalItem{Entry: &e})
	}
	return f, nil
}

type journalOf struct{ items []wire.JournalItem }

func (f *journalOf) Next(ctx context.Context) (wire.JournalItem, error) {
	if len(f.items) == 0 {
		<-ctx.Done()
		return wire.JournalItem{}, ctx.Err()
	}
	item := f.items[0]
	f.items = f.items[1:]
	return item, nil
}

func (f *journalOf) Close() {}

func (w *world) Trace(_ context.Context, id string) (wire.Trace, error) {
	if id != "1" {
		return wire.Trace{}, wire.Errorf(wire.NotFound, "nothing is known of %q", id)
	}
	return wire.Trace{Asked: id, Is: "process", Correlation: "c", StartedAt: epoch, EndedAt: epoch, Cost: new(int64),
		Gaps:  []wire.TraceGap{{Neuron: "me/process/1", Feed: wire.FeedIn, First: 3}},
		Nodes: []wire.TraceNode{{Kind: wire.NodeGap, ID: "g", What: "gone", At: epoch, State: "gone"}, {Kind: wire.NodeDelivery, ID: "c", Parent: "g", Depth: 1, What: "a.v1", At: epoch, State: "handled"}},
	}, nil
}

// Dead letters come page by page; each is re-driven or discarded once.
func TestDeadLetterRoutes(t *testing.T) { // N-18, I-24
	r := start(t)
	first, err := r.client.DeadLetters(t.Context(), "", 2)
	if err != nil || len(first.Items) != 2 || first.Next != "d2" || string(first.Items[0].Payload) != `{"a":1}` {
		t.Fatalf("%+v, %v", first, err)
	}
	rest, err := r.client.DeadLetters(t.Context(), first.Next, 2)
	if err != nil || len(rest.Items) != 1 || rest.Next != "" {
		t.Fatalf("%+v, %v", rest, err)
	}
	if got, err := r.client.Redrive(t.Context(), "d1"); err != nil || got != (wire.Redriven{ID: "d1", As: "d1-again"}) {
		t.Errorf("%+v, %v", got, err)
	}
	if err := r.client.Discard(t.Context(), "d2"); err != nil {
		t.Error(err)
	}
	var e *wire.Error
	if _, err := r.client.Redrive(t.Context(), "d1"); !errors.As(err, &e) || e.Code != wire.NotFound {
		t.Errorf("again: %v", err)
	}
	// What can be no id is for the client one that is not there; who asks without it hears what is wrong.
	if err := r.client.Discard(t.Context(), "a b"); !errors.As(err, &e) || e.Code != wire.NotFound {
		t.Errorf("no id: %v", err)
	}
	for _, first := range []string{"DELETE /v1/deadletters/a%20b", "PUT /v1/deadletters/a%20b/redrive"} {
		if got := r.ask(t, first, []string{"Host: soma", good}, "").code(t); got != wire.BadRequest {
			t.Errorf("%s: %s", first, got)
		}
	}
}

// A journal is followed from a cursor with one reset for what is not kept, and from its cursor on without a gap.
func TestJournalStream(t *testing.T) { // N-15, I-23
	r := start(t)
	var seen []string
	at, err := r.client.FollowJournal(t.Context(), "me/process/1", wire.FeedIn, wire.Cursor{}, func(f client.JournalFrame) error {
		if f.Reset != nil {
			seen = append(seen, fmt.Sprintf("reset %d-%d", f.Reset.First, f.Reset.Last))
			return nil
		}
		seen = append(seen, f.Entry.ID)
		if f.Entry.Seq == 4 {
			seen = append(seen, f.Cursor.String())
			return nil
		}
		if f.Entry.Seq == 5 {
			return client.ErrEnough
		}
		return nil
	})
	if want := []string{"reset 3-5", "e3", "e4", "g1.4", "e5"}; err != nil || !slices.Equal(seen, want) {
		t.Fatalf("%v, %v", seen, err)
	}
	seen = nil
	if _, err := r.client.FollowJournal(t.Context(), "me/process/1", wire.FeedIn, at, func(f client.JournalFrame) error {
		seen = append(seen, f.Entry.ID)
		return client.ErrEnough
	}); err != nil || !slices.Equal(seen, []string{"e5"}) {
		t.Errorf("after %s: %v, %v", at, seen, err)
	}
	var e *wire.Error
	if _, err := r.client.Journal(t.Context(), "me/process", wire.FeedIn, 0, 0); !errors.As(err, &e) || e.Code != wire.BadRequest {
		t.Errorf("no neuron: %v", err)
	}
	if j, err := r.client.Journal(t.Context(), "me/process/1", wire.FeedOut, 0, 2); err != nil || !j.Reset || len(j.Entries) != 2 || j.Feed != wire.FeedOut {
		t.Errorf("%+v, %v", j, err)
	}
}
