package evidence_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/evidence"
	"soma/message"
	"soma/wire"
)

// N-41, N-18, N-44: what a build has no handler for is a dead letter with a fact for its sender; after an upgrade it is
// re-driven, once, and the trace shows all of it.
func TestRedriveAfterUpgrade(t *testing.T) {
	w := newWorld(t)
	sender := func() *neuron.Kind {
		k := neuron.NewKind("test")
		neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error {
			return errors.Join(neuron.Send(turn, id("sink"), otherType, n), neuron.Send(turn, id("other"), otherType, n))
		})
		return k
	}
	w.start(t, nil, sender())
	d := w.deliver(t, id("a"), 7)
	w.quiet(t)
	letters, err := w.ev.DeadLetters(t.Context(), "", 10)
	if err != nil || len(letters) != 2 || letters[0].Code != "no_handler" || letters[0].Correlation != d.ID.String() ||
		letters[0].Caller != "me/test/a" || letters[0].Attempts != 1 || string(letters[0].Payload) != `{"n":7}` {
		t.Fatalf("%+v, %v", letters, err)
	}
	if second, err := w.ev.DeadLetters(t.Context(), letters[0].ID, 10); err != nil || len(second) != 1 || second[0].ID != letters[1].ID {
		t.Errorf("after the first: %+v, %v", second, err)
	}
	out, err := w.ev.Journal(t.Context(), "me/test/a", wire.FeedOut, 0, 10)
	if err != nil || out.Last != 4 || out.Entries[2].Ended == nil || out.Entries[2].Ended.Code != "no_handler" {
		t.Errorf("the sender's facts: %+v, %v", out, err)
	}
	wantShape(t, w.trace(t, letters[1].ID), `
delivery test.note.v1: handled at me/test/a
  delivery test.other.v1: refused, no_handler, test has no handler for test.other.v1, dead at me/test/sink
    delivery neuron.delivery_ended.v1: handled at me/test/a
  delivery test.other.v1: refused, no_handler, test has no handler for test.other.v1, dead at me/test/other *
    delivery neuron.delivery_ended.v1: handled at me/test/a
`)

	upgraded := sender()
	got := 0
	neuron.Handle(upgraded, otherType, func(turn *neuron.Turn, n note) error {
		if turn.Delivery().IdempotencyKey() != letters[0].ID {
			t.Errorf("the key is %s", turn.Delivery().IdempotencyKey())
		}
		got += n.N
		return nil
	})
	w.start(t, nil, upgraded)
	again, err := w.ev.Redrive(t.Context(), letters[0].ID)
	if err != nil || again.ID != letters[0].ID {
		t.Fatalf("%+v, %v", again, err)
	}
	w.quiet(t)
	if got != 7 {
		t.Errorf("the handler got %d", got)
	}
	if _, err := w.ev.Discard(t.Context(), letters[1].ID); err != nil {
		t.Error(err)
	}
	var refused *wire.Error
	for _, gone := range []string{letters[0].ID, letters[1].ID, "none"} {
		if _, err := w.ev.Redrive(t.Context(), gone); !errors.As(err, &refused) || refused.Code != wire.NotFound {
			t.Errorf("%s again: %v", gone, err)
		}
		if _, err := w.ev.Discard(t.Context(), gone); !errors.As(err, &refused) || refused.Code != wire.NotFound {
			t.Errorf("%s discarded again: %v", gone, err)
		}
	}
	wantShape(t, w.trace(t, again.As), `
delivery test.note.v1: handled at me/test/a
  delivery test.other.v1: refused, no_handler at me/test/sink
    delivery neuron.delivery_ended.v1: handled at me/test/a
    delivery test.other.v1: handled at me/test/sink *
  delivery test.other.v1: refused, no_handler at me/test/other
    delivery neuron.delivery_ended.v1: handled at me/test/a
daemon daemon local: started, its start number 2
`)
}

// N-18: a trace shows what is still under way: what is tried again, alarms, executions, and how many attempts it took.
func TestTraceOfWorkUnderWay(t *testing.T) {
	w := newWorld(t, func(l *neuron.Limits) { l.BackoffMin, l.BackoffMax = time.Hour, time.Hour })
	k := neuron.NewKind("test")
	tried := make(chan bool, 4)
	neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error {
		if _, err := neuron.After(turn, time.Hour, laterType, n); err != nil {
			return err
		}
		turn.Start(neuron.Execution{Kind: "gate", Policy: neuron.Once, Then: endType.Alias()})
		return neuron.Send(turn, id("b"), otherType, n)
	})
	neuron.Handle(k, otherType, func(*neuron.Turn, note) error { tried <- true; return errBroken })
	neuron.Handle(k, endType, func(turn *neuron.Turn, e neuron.Ended) error { turn.Finish(e.ID); return nil })
	neuron.Handle(k, laterType, func(*neuron.Turn, note) error { return nil })
	g := gate(make(chan error))
	w.start(t, map[string]neuron.Adapter{"gate": g}, k)
	d := w.deliver(t, id("a"), 1)
	<-tried
	w.await(t, func() bool { return w.attempts(t) == 2 })
	tr := w.trace(t, d.ID.String())
	wantShape(t, tr, `
delivery test.note.v1: handled at me/test/a *
  delivery test.later.v1: alarm at me/test/a
  execution gate: running at me/test/a
  delivery test.other.v1: retrying, attempts 2 at me/test/b
`)
	running := tr.Nodes[2]
	if running.Parent != d.ID.String() || !strings.HasSuffix(running.ID, ".1") || tr.Nodes[1].Due == nil || tr.Nodes[3].Due == nil {
		t.Errorf("%+v", tr.Nodes)
	}
	if byRun := w.trace(t, running.ID); byRun.Is != wire.NodeExecution || !byRun.Nodes[2].Asked || byRun.Correlation != d.ID.String() {
		t.Errorf("by the execution: %+v", byRun)
	}
	g <- errBroken
	w.await(t, func() bool {
		_, err := w.ev.Trace(t.Context(), strings.TrimSuffix(running.ID, ".1"))
		j, jerr := w.ev.Journal(t.Context(), "me/test/a", wire.FeedIn, 1, 1)
		return err == nil && jerr == nil && j.Last == 2
	})
	w.limits.BackoffMin, w.limits.BackoffMax = time.Millisecond, time.Millisecond
	cured := neuron.NewKind("test")
	neuron.Handle(cured, otherType, func(*neuron.Turn, note) error { return nil })
	neuron.Handle(cured, laterType, func(*neuron.Turn, note) error { return nil })
	w.start(t, nil, cured)
	w.await(t, func() bool {
		j, err := w.ev.Journal(t.Context(), "me/test/b", wire.FeedIn, 0, 1)
		return err == nil && j.Last == 1
	})
	ended := w.trace(t, strings.TrimSuffix(running.ID, ".1"))
	if i := strings.Index(shape(ended), "delivery test.other.v1: handled, attempts 2 at me/test/b"); i < 0 {
		t.Errorf("after the second attempt:\n%s", shape(ended))
	}
	if i := strings.Index(shape(ended), "  execution test.ended.v1: failed, broken at me/test/a *\n    delivery test.ended.v1: handled"); i < 0 {
		t.Errorf("after the execution:\n%s", shape(ended))
	}
	if ended.Cost == nil || *ended.Cost != 0 || ended.Cut != "" || len(ended.Gaps) != 0 {
		t.Errorf("%+v", ended)
	}
}

// await asks the engine again until it has come so far; what it waits for has no signal.
func (w *world) await(t *testing.T, ok func() bool) {
	t.Helper()
	limit, again := time.After(20*time.Second), time.NewTicker(time.Millisecond)
	defer again.Stop()
	for !ok() {
		select {
		case <-again.C:
		case <-limit:
			t.Fatal("waited too long")
		}
	}
}

// attempts is the number of the next attempt of the one delivery that is tried again.
func (w *world) attempts(t *testing.T) (n int) {
	t.Helper()
	err := w.store.Query(t.Context(), "select max(attempts) from outbox", nil, func(scan func(...any) error) error { return scan(&n) })
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// N-15, N-13: a journal begins with what is kept and says so; who follows gets one reset, then every entry, then what comes.
// A trace over the lost part shows a gap where it leads to nothing.
func TestCompactionShowsAsGaps(t *testing.T) {
	w := newWorld(t, func(l *neuron.Limits) { l.JournalEntries, l.CheckpointTurn = 16, 8 })
	k := neuron.NewKind("test")
	neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error {
		if n.N == 0 {
			return nil
		}
		return neuron.Send(turn, turn.Self(), noteType, note{n.N - 1}, neuron.AtDepth(0))
	})
	w.start(t, nil, k)
	w.deliver(t, id("b"), 0)
	d := w.deliver(t, id("a"), 63)
	w.quiet(t)
	j, err := w.ev.Journal(t.Context(), "me/test/a", wire.FeedIn, 5, 1000)
	if err != nil || !j.Reset || j.Last != 64 || j.First != 49 || len(j.Entries) != 16 || j.Entries[0].Seq != 49 || j.Tallies["test.note.v1"] != 64 {
		t.Fatalf("%d to %d, reset %v, %d entries, %v, %v", j.First, j.Last, j.Reset, len(j.Entries), j.Tallies, err)
	}
	if j, err = w.ev.Journal(t.Context(), "me/test/a", wire.FeedIn, 60, 2); err != nil || j.Reset || len(j.Entries) != 2 || j.Entries[0].Seq != 61 {
		t.Errorf("after 60: %+v, %v", j, err)
	}

	f, err := w.ev.FollowJournal("me/test/a", wire.FeedIn, wire.Cursor{Generation: "g", Seq: 5})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	next := func() wire.JournalItem {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		item, err := f.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return item
	}
	if item := next(); item.Reset == nil || item.Reset.First != 49 || item.Reset.Last != 64 || item.Reset.Tallies["test.note.v1"] != 64 {
		t.Fatalf("%+v", item)
	}
	for seq := uint64(49); seq <= 64; seq++ {
		if item := next(); item.Entry == nil || item.Entry.Seq != seq {
			t.Fatalf("%+v in place of %d", item, seq)
		}
	}
	w.deliver(t, id("a"), 0)
	if item := next(); item.Entry == nil || item.Entry.Seq != 65 || item.Entry.Caller != "" {
		t.Errorf("what comes: %+v", item)
	}

	// What left the window keeps its row for a while, and is found by its id.
	gaps := []wire.TraceGap{{Neuron: "me/test/a", Feed: "in", First: 50}, {Neuron: "me/test/a", Feed: "out", First: 48}}
	if tr := w.trace(t, j.Entries[0].ID); len(tr.Nodes) != 64 || tr.Nodes[0].ID != d.ID.String() || !slices.Equal(tr.Gaps, gaps) {
		t.Errorf("%d nodes, %+v", len(tr.Nodes), tr.Gaps)
	}
	w.compact(t, id("a"), 2, 49) // the first one is found by the correlation
	gaps[1].First = 50
	if tr := w.trace(t, j.Entries[0].ID); len(tr.Nodes) != 17 || tr.Nodes[0].ID != d.ID.String() || tr.Nodes[1].Kind != wire.NodeGap || tr.Nodes[1].Depth != 0 {
		t.Errorf("with its beginning:\n%s", shape(tr))
	}
	w.compact(t, id("a"), 1, 1)
	tr := w.trace(t, j.Entries[0].ID)
	if tr.Correlation != d.ID.String() || !slices.Equal(tr.Gaps, gaps) ||
		len(tr.Nodes) != 16 || tr.Nodes[0].Kind != wire.NodeGap || tr.Nodes[15].Depth != 15 {
		t.Errorf("%+v\n%s", tr.Gaps, shape(tr))
	}
	var refused *wire.Error
	if _, err := w.ev.Trace(t.Context(), d.ID.String()); !errors.As(err, &refused) || refused.Code != wire.NotFound {
		t.Errorf("by a delivery that is not kept: %v", err)
	}
}

// A trace is bounded in neurons, and says so.
func TestTraceIsBounded(t *testing.T) {
	w := newWorld(t)
	k := neuron.NewKind("test")
	neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error {
		for i := range n.N {
			if err := neuron.Send(turn, id(strconv.Itoa(i)), otherType, n); err != nil {
				return err
			}
		}
		return nil
	})
	neuron.Handle(k, otherType, func(*neuron.Turn, note) error { return nil })
	w.start(t, nil, k)
	fits, more := w.deliver(t, id("a"), wire.MaxTraceNeurons-1), w.deliver(t, id("a"), wire.MaxTraceNeurons)
	w.quiet(t)
	if tr := w.trace(t, fits.ID.String()); tr.Cut != "" || len(tr.Nodes) != wire.MaxTraceNeurons {
		t.Errorf("cut %q, %d nodes", tr.Cut, len(tr.Nodes))
	}
	tr := w.trace(t, more.ID.String())
	if tr.Cut != fmt.Sprintf("more than %d neurons", wire.MaxTraceNeurons) || len(tr.Nodes) != wire.MaxTraceNeurons+1 {
		t.Errorf("cut %q, %d nodes", tr.Cut, len(tr.Nodes))
	}
	for _, n := range tr.Nodes { // what lies in a neuron that was not visited is found by its id
		if n.State != "handled" {
			t.Errorf("%+v", n)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.ev.Trace(ctx, more.ID.String()); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that has gone: %v", err)
	}
}

// N-21: an emission shows with all that it went to, whether it was heard or waits.
func TestTraceOfAnEmission(t *testing.T) {
	w := newWorld(t)
	source, hears := neuron.NewKind("test"), neuron.NewKind("hears")
	neuron.Handle(source, noteType, func(turn *neuron.Turn, n note) error { return neuron.Emit(turn, otherType, n) })
	neuron.Handle(hears, otherType, func(*neuron.Turn, note) error { return nil })
	neuron.Broadcast(hears, otherType, func(string, note) (string, bool) { return "x", true })
	w.start(t, nil, source, hears)
	d := w.deliver(t, id("a"), 1)
	w.quiet(t)
	wantShape(t, w.trace(t, d.ID.String()), `
delivery test.note.v1: handled at me/test/a *
  emission test.other.v1: emitted, to 1 neurons at me/test/a
    delivery test.other.v1: handled at me/hears/x
`)
	j, err := w.ev.Journal(t.Context(), "me/test/a", wire.FeedOut, 0, 1)
	if err != nil || len(j.Entries) != 1 || j.Entries[0].Receivers == nil || *j.Entries[0].Receivers != 1 || j.Entries[0].Target != "" {
		t.Errorf("%+v, %v", j, err)
	}
	w.start(t, nil, source) // a build in which nobody hears it
	tr := w.trace(t, d.ID.String())
	if len(tr.Nodes) != 2 || tr.Nodes[1].Note != "to 1 neurons, 1 of which are not known any more" {
		t.Errorf("%s", shape(tr))
	}
}

// What the domain tells finds its place: above what it ended by, below what began it, and the sums are right.
func TestFactsOfTheDomain(t *testing.T) {
	w := newWorld(t)
	k := neuron.NewKind("test")
	neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error {
		if n.N == 0 {
			return nil
		}
		return neuron.Send(turn, id("b"), noteType, note{n.N - 1})
	})
	w.start(t, nil, k)
	d := w.deliver(t, id("a"), 1)
	joined := w.deliver(t, id("b"), 0)
	w.quiet(t)
	cost := int64(5)
	w.domain.facts = func(e *neuron.Entry) []evidence.Fact {
		if e.ID == d.ID {
			return []evidence.Fact{
				{TraceNode: wire.TraceNode{Kind: wire.NodeInput, ID: "i", What: "hello", State: "delivered", At: e.At}, JoinedAt: time.Now()},
			}
		}
		if e.ID == joined.ID {
			t.Error("a delivery of another correlation was asked about")
		}
		return []evidence.Fact{{Above: true, TraceNode: wire.TraceNode{Kind: wire.NodeCell, ID: "c", What: "1+1", State: "ok", At: e.At, Cost: &cost, Usage: &message.Usage{Input: 3, Output: 4}}}}
	}
	w.domain.found["thing"] = evidence.Found{Is: "cell", Neurons: []neuron.ID{id("none"), id("a")}, Pick: func(list []neuron.Entry) int { return len(list) - 1 }}
	w.domain.found["lost"] = evidence.Found{Is: "cell", Delivery: ident.New(time.Now()), Neurons: []neuron.ID{id("a")}, Pick: func([]neuron.Entry) int { return -1 }}
	tr := w.trace(t, "thing")
	if tr.Is != "cell" || tr.Tokens != 7 || tr.Cost == nil || *tr.Cost != 5 {
		t.Errorf("%s, %d tokens, %v", tr.Is, tr.Tokens, tr.Cost)
	}
	wantShape(t, tr, `
delivery test.note.v1: handled at me/test/a *
  input hello: delivered
  cell 1+1: ok
    delivery test.note.v1: handled at me/test/b
`)
	var refused *wire.Error
	if _, err := w.ev.Trace(t.Context(), "lost"); !errors.As(err, &refused) || refused.Code != wire.NotFound || !strings.Contains(refused.Title, "me/test/a begins with 1 of 1") {
		t.Errorf("what is not kept: %v", err)
	}
	if _, err := w.ev.Trace(t.Context(), ident.New(time.Now()).String()); !errors.As(err, &refused) || refused.Code != wire.NotFound {
		t.Errorf("what never was: %v", err)
	}
	for _, bad := range []string{"", "me/test", "me//a", "a/b/c/d"} {
		if _, err := w.ev.Journal(t.Context(), bad, wire.FeedIn, 0, 1); !errors.As(err, &refused) || refused.Code != wire.BadRequest {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := w.ev.Journal(t.Context(), "me/test/none", wire.FeedOut, 0, 1); !errors.As(err, &refused) || refused.Code != wire.NotFound {
		t.Errorf("a neuron that never was: %v", err)
	}
}
