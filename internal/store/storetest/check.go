package storetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"

	"soma/internal/neuron"
)

// fataler is what a failed check needs of a test; rapid's tests have it too.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

func sameTallies(a, b map[string]uint64) bool {
	return maps.Equal(a, b)
}

// checkRow compares the neuron's row with what its turns must have left.
func (a *actor) checkRow(t fataler, n neuron.NeuronRow) {
	t.Helper()
	if len(a.in) == 0 {
		if n.Key != 0 {
			t.Fatalf("%s has key %d before its first turn", a.id, n.Key)
		}
		return
	}
	if n.Key != a.key || n.Place != neuron.PlaceOf(a.id.String()) {
		t.Fatalf("%s: key %d place %d, want %d %d", a.id, n.Key, n.Place, a.key, neuron.PlaceOf(a.id.String()))
	}
	if n.InSeq != a.now.InSeq || n.OutSeq != a.now.OutSeq || n.SinceCheckpoint != a.since {
		t.Fatalf("%s: in %d out %d since %d, want %d %d %d", a.id, n.InSeq, n.OutSeq, n.SinceCheckpoint, a.now.InSeq, a.now.OutSeq, a.since)
	}
	if n.StateAlias != a.now.StateAlias || !bytes.Equal(n.State, a.now.State) {
		t.Fatalf("%s: state %s %s, want %s %s", a.id, n.StateAlias, n.State, a.now.StateAlias, a.now.State)
	}
	if !sameTallies(n.Tallies.In, a.now.Tallies.In) || !sameTallies(n.Tallies.Out, a.now.Tallies.Out) {
		t.Fatalf("%s: tallies %v, want %v", a.id, n.Tallies, a.now.Tallies)
	}
}

// feed returns all entries of a feed since the neuron exists, and the tallies.
func (a *actor) feed(f neuron.Feed) ([]neuron.Entry, map[string]uint64) {
	if f == neuron.In {
		return a.in, a.now.Tallies.In
	}
	return a.out, a.now.Tallies.Out
}

// slack is how far the window may fall short of the bound in bytes: an entry is counted with what surrounds its payload.
const slack = 64<<10 + 1<<10

// checkPage compares a page with the feed: the window is as large as the bounds allow and no larger, nothing is missing
// or made up.
func (a *actor) checkPage(t fataler, f neuron.Feed, after uint64, limit int, p neuron.Page) {
	t.Helper()
	all, tallies := a.feed(f)
	l := neuron.DefaultLimits()
	last := uint64(len(all))
	if p.Last != last || !sameTallies(p.Tallies, tallies) {
		t.Fatalf("feed %d: last %d tallies %v, want %d %v", f, p.Last, p.Tallies, last, tallies)
	}
	if p.First < 1 || p.First > last+1 || p.First == last+1 && last > 0 {
		t.Fatalf("feed %d: first %d of %d", f, p.First, last)
	}
	kept := all[p.First-1:]
	size, payload := 0, 0
	for i, e := range kept {
		size += a.sizes[f][p.First-1+uint64(i)]
		payload += len(e.Payload)
	}
	if len(kept) > l.JournalEntries || payload > l.JournalBytes {
		t.Fatalf("feed %d shows %d entries and %d bytes of payload", f, len(kept), payload)
	}
	if p.First > 1 && len(kept) < l.JournalEntries && size < l.JournalBytes-slack {
		t.Fatalf("feed %d shows only %d entries and %d bytes", f, len(kept), size)
	}
	start := after + 1
	if reset := start < p.First; reset != p.Reset {
		t.Fatalf("feed %d: reset %v after %d with first %d", f, p.Reset, after, p.First)
	}
	start = max(start, p.First)
	var want []neuron.Entry
	if start <= last {
		want = all[start-1:]
	}
	want = want[:min(len(want), limit)]
	if len(p.Entries) != len(want) || len(p.Seqs) != len(want) {
		t.Fatalf("feed %d after %d limit %d: %d entries, %d sequences, want %d", f, after, limit, len(p.Entries), len(p.Seqs), len(want))
	}
	for i := range want {
		if p.Seqs[i] != start+uint64(i) {
			t.Fatalf("feed %d: sequence %d, want %d", f, p.Seqs[i], start+uint64(i))
		}
		if !reflect.DeepEqual(p.Entries[i], want[i]) {
			t.Fatalf("feed %d entry %d: %v", f, p.Seqs[i], same(p.Entries[i], want[i]))
		}
	}
}

// same compares two values by their JSON.
func same(got, want any) error {
	g, err := json.Marshal(got)
	if err != nil {
		return err
	}
	w, err := json.Marshal(want)
	if err != nil {
		return err
	}
	if !bytes.Equal(g, w) {
		return fmt.Errorf("got %s, want %s", g, w)
	}
	return nil
}
