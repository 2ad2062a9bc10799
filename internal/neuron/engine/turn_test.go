package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"soma/ident"
	"soma/internal/feed"
	"soma/internal/neuron"
	"soma/internal/neuron/engine"
)

// N-06, N-13: what a turn stages is there after its commit and not before; both feeds count without gaps.
func TestTurnCommitsTogether(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		k := neuron.NewKind("test")
		var e *engine.Engine
		during := make(chan neuron.Page, 1)
		neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error {
			sum, err := neuron.State(turn, sumType, nil)
			if err != nil {
				return err
			}
			if err := neuron.SetState(turn, sumType, sum+n.N); err != nil {
				return err
			}
			turn.Write(put{turn.Self().Key + n.Text, fmt.Sprint(sum + n.N)})
			if err := neuron.Send(turn, id("sink"), otherType, n); err != nil {
				return err
			}
			p, err := e.Read(turn.Context(), turn.Self(), neuron.In, 0, 0)
			if err == nil && n.Text == "1" {
				during <- p
			}
			return err
		})
		neuron.Handle(k, otherType, func(*neuron.Turn, note) error { return nil })
		e = start(t, b, engine.Options{Kinds: []*neuron.Kind{k}})
		for i := 1; i <= 3; i++ {
			if err := engine.Fire(t.Context(), e, id("a"), noteType, note{fmt.Sprint(i), i}); err != nil { // N-40
				t.Fatal(err)
			}
		}
		quiet(t, e)
		if p := <-during; p.Last != 0 {
			t.Errorf("the journal holds %d entries before the first commit", p.Last)
		}
		want := map[string]string{"a1": "1", "a2": "3", "a3": "6"}
		if got := b.rows(t); !maps.Equal(got, want) {
			t.Errorf("rows %v, want %v", got, want)
		}
		for f, tally := range map[neuron.Feed]map[string]uint64{neuron.In: {"test.note.v1": 3}, neuron.Out: {"test.other.v1": 3}} {
			p := page(t, e, id("a"), f)
			if !slices.Equal(p.Seqs, []uint64{1, 2, 3}) || !maps.Equal(p.Tallies, tally) {
				t.Errorf("feed %d: %v %v", f, p.Seqs, p.Tallies)
			}
		}
		in, out := page(t, e, id("a"), neuron.In).Entries[1], page(t, e, id("a"), neuron.Out).Entries[1]
		// N-03
		if out.Causation != in.ID || out.Correlation != in.ID || out.Caller != id("a") || out.Target != id("sink") || out.Seq != 2 || out.Depth != 1 || in.Depth != 0 ||
			out.Alias != otherType.Alias() || string(out.Payload) != `{"text":"2","n":2}` || out.Target.Owner != "me" || out.At.IsZero() || out.ID == in.ID || !in.Caller.IsZero() || !in.Causation.IsZero() {
			t.Errorf("sent %+v from %+v", out, in)
		}
		if s := page(t, e, id("sink"), neuron.In); s.Last != 3 || s.Entries[1].ID != out.ID {
			t.Errorf("the sink got %+v", s)
		}
	})
}

// N-06: while its commit is on the way, a turn is neither told to watchers nor is what it sends handed over.
func TestNothingIsToldBeforeTheCommit(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		var seen log
		k := neuron.NewKind("test")
		neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error { return neuron.Send(turn, id("b"), otherType, n) })
		neuron.Handle(k, otherType, func(_ *neuron.Turn, n note) error { seen.add("%s", n.Text); return nil })
		gate := make(chan struct{})
		var told atomic.Int32
		e := start(t, b, engine.Options{Store: &holding{Store: b.store, gate: gate}, Kinds: []*neuron.Kind{k}, Generation: "g",
			Committed: func([]*neuron.Record) { told.Add(1) }})
		w := e.Watch(id("a"), neuron.In, feed.Cursor{Generation: "g"})
		defer w.Close()
		var wg sync.WaitGroup
		d := fresh(t, id("a"), "x")
		wg.Go(func() { deliver(t, e, d) })
		waitFor(t, e, func(s engine.Stats) bool { return s.Records == 1 })
		short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if ev, err := w.Next(short); err == nil {
			t.Errorf("a watcher heard %+v", ev)
		}
		if told.Load() != 0 || len(seen.all()) != 0 {
			t.Errorf("told %d times, handed over %v", told.Load(), seen.all())
		}
		close(gate)
		wg.Wait()
		if ev, err := w.Next(t.Context()); err != nil || ev.Seq != 1 || ev.Value.ID != d.ID {
			t.Errorf("after the commit: %+v, %v", ev, err)
		}
		quiet(t, e)
		if got := seen.all(); !slices.Equal(got, []string{"x"}) {
			t.Errorf("handed over %v", got)
		}
	})
}

// N-06, N-20: a repeat is acknowledged and runs nothing, also after a restart.
func TestRepeatHasNoEffect(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		var seen log
		k := neuron.NewKind("test")
		neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error { seen.add("%s", n.Text); return nil })
		e := start(t, b, engine.Options{Kinds: []*neuron.Kind{k}})
		first, second := fresh(t, id("a"), "1"), fresh(t, id("a"), "2")
		named := fresh(t, id("a"), "3")
		named.ID = ident.Named("client", "x")
		for _, d := range []neuron.Delivery{first, second, first, named, named, second} {
			deliver(t, e, d)
		}
		later := fresh(t, id("a"), "4") // made while the neuron is warm
		deliver(t, e, later)
		deliver(t, e, later)
		stop(t, e)
		b.reopen(t)
		e = start(t, b, engine.Options{Kinds: []*neuron.Kind{k}})
		for _, d := range []neuron.Delivery{named, first, second, later} {
			deliver(t, e, d)
		}
		if got := seen.all(); !slices.Equal(got, []string{"1", "2", "3", "4"}) {
			t.Errorf("handled %v", got)
		}
	})
}

// N-20: an id that is newer than all the neuron knows costs no look-up.
func TestFreshIDsAreNotLookedUp(t *testing.T) {
	b := fake()
	k := neuron.NewKind("test")
	neuron.Handle(k, noteType, func(*neuron.Turn, note) error { return nil })
	// Other tests have let ids run ahead of the wall clock.
	now := func() time.Time { return time.Now().AddDate(100, 0, 0) }
	e := start(t, b, engine.Options{Kinds: []*neuron.Kind{k}, Now: now})
	deliver(t, e, fresh(t, id("a"), ""))
	_, before := b.fake.Reads()
	for range 10 {
		deliver(t, e, fresh(t, id("a"), ""))
	}
	if _, n := b.fake.Reads(); n != before {
		t.Errorf("%d look-ups for 10 fresh deliveries", n-before)
	}
}

// N-20: ids that sort among older ones, such as those that clients choose, are looked up a few times, then told by what the
// neuron has read of its window; a repeat is known either way, from before a restart and after it.
func TestNamedIDsAreSeldomLookedUp(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		handled := map[string]int{}
		var mu sync.Mutex
		k := neuron.NewKind("test")
		neuron.Handle(k, noteType, func(_ *neuron.Turn, n note) error {
			mu.Lock()
			defer mu.Unlock()
			handled[n.Text]++
			return nil
		})
		named := func(from, to int) (all []neuron.Delivery) {
			for i := from; i < to; i++ {
				d := fresh(t, id("a"), fmt.Sprint(i))
				d.ID = ident.Named("client", fmt.Sprint(i))
				all = append(all, d)
			}
			return all
		}
		lookUps := func() (n int) {
			if b.fake != nil {
				_, n = b.fake.Reads()
			}
			return n
		}
		e := start(t, b, engine.Options{Kinds: []*neuron.Kind{k}})
		for _, d := range named(0, 150) {
			deliver(t, e, d)
		}
		if n := lookUps(); n > 15 {
			t.Errorf("%d look-ups for 150 new ids", n)
		}
		for range 2 {
			for _, d := range named(0, 150) {
				deliver(t, e, d)
			}
			stop(t, e)
			b.reopen(t)
			e = start(t, b, engine.Options{Kinds: []*neuron.Kind{k}})
			for _, d := range named(140, 150) { // the last of them know the window already
				deliver(t, e, d)
			}
		}
		before := lookUps()
		for _, d := range named(150, 300) {
			deliver(t, e, d)
		}
		if n := lookUps() - before; n > 15 {
			t.Errorf("%d look-ups for 150 new ids after a restart", n)
		}
		for _, d := range named(0, 300) {
			deliver(t, e, d)
		}
		for i := range 300 {
			if n := handled[fmt.Sprint(i)]; n != 1 {
				t.Errorf("%d was handled %d times", i, n)
			}
		}
	})
}

// N-13: at every 64th turn the neuron's row is written, also over a restart; what it holds is what the turns made, which the
// fake compares.
func TestCheckpoints(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		k := counting()
		neuron.Handle(k, otherType, func(turn *neuron.Turn, n note) error { return neuron.Send(turn, id("b"), noteType, n) })
		e := start(t, b, engine.Options{Kinds: []*neuron.Kind{k}})
		for i := 1; i <= 200; i++ {
			d := fresh(t, id("a"), "")
			if i%3 == 0 {
				d.Alias = otherType.Alias()
			}
			deliver(t, e, d)
			if i == 100 {
				stop(t, e)
				b.reopen(t)
				e = start(t, b, engine.Options{Kinds: []*neuron.Kind{k}})
			}
		}
		n, err := b.store.Neuron(t.Context(), id("a"))
		since := int(200+n.Key) % 64
		if err != nil || n.InSeq != 200 || n.OutSeq != 66 || n.SinceCheckpoint != since || string(n.State) != "134" {
			t.Errorf("%+v, %v", n, err)
		}
		if n.Tallies.In["test.note.v1"] != 134 || n.Tallies.Out["test.note.v1"] != 66 {
			t.Errorf("tallies %+v", n.Tallies)
		}
	})
}

// N-13: neurons that run in step are not written all in one commit.
func TestCheckpointsAreSpread(t *testing.T) {
	b := fake()
	e := start(t, b, engine.Options{Kinds: []*neuron.Kind{counting()}})
	at := map[int]int{}
	for n := range 64 {
		to := id(fmt.Sprint(n))
		for range 64 {
			deliver(t, e, fresh(t, to, ""))
		}
		row, err := b.store.Neuron(t.Context(), to)
		if err != nil {
			t.Fatal(err)
		}
		at[row.SinceCheckpoint]++
	}
	if len(at) != 64 {
		t.Errorf("64 neurons in step are written in %d of 64 turns", len(at))
	}
}

// N-08: an error or a panic takes everything back, and the caller may repeat under the same id. The stack is in the log only.
func TestFailedAttemptLeavesNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		k := neuron.NewKind("test")
		tries := 0
		neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error {
			tries++
			turn.Write(put{fmt.Sprint("try", tries), "x"})
			if err := neuron.SetState(turn, sumType, tries); err != nil {
				return err
			}
			if err := neuron.Send(turn, id("b"), otherType, n); err != nil {
				return err
			}
			switch tries {
			case 1:
				return errBroken
			case 2:
				panic("boom")
			}
			return nil
		})
		neuron.Handle(k, otherType, func(*neuron.Turn, note) error { return nil })
		var text bytes.Buffer
		e := start(t, b, engine.Options{Kinds: []*neuron.Kind{k}, Log: slog.New(slog.NewTextHandler(&text, nil))})
		d := fresh(t, id("a"), "")
		if err := e.Deliver(t.Context(), d); !errors.Is(err, errBroken) {
			t.Fatalf("first: %v", err)
		}
		if err := e.Deliver(t.Context(), d); err == nil || !strings.Contains(err.Error(), "boom") || strings.Contains(err.Error(), "\n") {
			t.Fatalf("second: %v", err)
		}
		if p := page(t, e, id("a"), neuron.In); p.Last != 0 || len(b.rows(t)) != 0 {
			t.Fatalf("after two failures: %d entries, rows %v", p.Last, b.rows(t))
		}
		deliver(t, e, d)
		quiet(t, e)
		if got := b.rows(t); !maps.Equal(got, map[string]string{"try3": "x"}) {
			t.Errorf("rows %v", got)
		}
		if in := page(t, e, id("b"), neuron.In); in.Last != 1 {
			t.Errorf("b got %d deliveries", in.Last)
		}
		stop(t, e)
		if !strings.Contains(text.String(), "turn_test.go") {
			t.Error("the log does not show where the panic was")
		}
	})
}

// N-09, N-44: a settled failure keeps the entry with its code and the id, and nothing of the turn; the sender's outgoing
// feed gets the fact.
func TestSettledRefusal(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		k := neuron.NewKind("test")
		tries := 0
		neuron.Handle(k, otherType, func(turn *neuron.Turn, n note) error {
			tries++
			turn.Write(put{"refused", "x"})
			if err := neuron.Send(turn, id("c"), noteType, n); err != nil {
				return err
			}
			return neuron.SettleAs("not_allowed", errBroken)
		})
		neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error {
			return neuron.Send(turn, id("b"), otherType, n)
		})
		e := start(t, b, engine.Options{Kinds: []*neuron.Kind{k}})
		deliver(t, e, fresh(t, id("a"), ""))
		quiet(t, e)
		if tries != 1 || len(b.rows(t)) != 0 || page(t, e, id("b"), neuron.Out).Last != 0 || page(t, e, id("c"), neuron.In).Last != 0 {
			t.Errorf("%d tries, rows %v", tries, b.rows(t))
		}
		in := page(t, e, id("b"), neuron.In)
		if in.Last != 1 || in.Entries[0].Settled != "not_allowed" {
			t.Fatalf("b's journal: %+v", in)
		}
		out := page(t, e, id("a"), neuron.Out)
		if out.Last != 2 || out.Entries[1].Ended == nil || *out.Entries[1].Ended != (neuron.EndedDelivery{ID: in.Entries[0].ID, Target: id("b"), Code: "not_allowed"}) {
			t.Fatalf("a's outgoing feed: %+v", out)
		}
		if len(dead(t, e)) != 0 || e.Stats().Outbox != 0 {
			t.Errorf("dead %v, %+v", dead(t, e), e.Stats())
		}
		var refusal *neuron.Refusal
		d := fresh(t, id("b"), "")
		d.Alias = otherType.Alias()
		if err := e.Deliver(t.Context(), d); !errors.As(err, &refusal) || refusal.Code != "not_allowed" || !errors.Is(err, errBroken) {
			t.Errorf("from outside: %v", err)
		}
	})
}

// N-41: no handler and an undecodable payload are settled with a dead letter that a later build can have again.
func TestDeadLettersAreRedriven(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		old := neuron.NewKind("test")
		neuron.Handle(old, noteType, func(*neuron.Turn, note) error { return nil })
		e := start(t, b, engine.Options{Kinds: []*neuron.Kind{old}})
		unknown := fresh(t, id("a"), "later")
		unknown.Alias = "test.future.v2"
		wrong := fresh(t, id("a"), "")
		wrong.Payload = []byte(`["no note"]`)
		garbage := fresh(t, id("a"), "")
		garbage.Payload = []byte("\xff{")
		for d, code := range map[*neuron.Delivery]neuron.Code{&unknown: neuron.NoHandler, &wrong: neuron.Undecodable, &garbage: neuron.Undecodable} {
			var refusal *neuron.Refusal
			if err := e.Deliver(t.Context(), *d); !errors.As(err, &refusal) || refusal.Code != code {
				t.Fatalf("%s: %v", code, err)
			}
		}
		letters := dead(t, e)
		if len(letters) != 3 || letters[0].ID != unknown.ID || letters[0].Code != neuron.NoHandler {
			t.Fatalf("dead letters %+v", letters)
		}
		// N-02: what no handler knows stays readable.
		var raw []string
		for _, entry := range page(t, e, id("a"), neuron.In).Entries {
			if entry.ID == unknown.ID {
				raw = append(raw, string(entry.Payload))
			}
		}
		if !slices.Equal(raw, []string{`{"text":"later"}`}) {
			t.Errorf("raw payload %v", raw)
		}
		stop(t, e)
		b.reopen(t)

		var seen log
		k := neuron.NewKind("test")
		future := neuron.NewType[note]("test.future.v2")
		neuron.Handle(k, future, func(turn *neuron.Turn, n note) error {
			seen.add("%s %s", n.Text, turn.Delivery().IdempotencyKey())
			return nil
		})
		e = start(t, b, engine.Options{Kinds: []*neuron.Kind{k}, Types: append([]string{future.Alias()}, types...)})
		if _, err := e.Redrive(t.Context(), unknown.ID); err != nil {
			t.Fatal(err)
		}
		quiet(t, e)
		if got := seen.all(); !slices.Equal(got, []string{"later " + unknown.ID.String()}) {
			t.Errorf("handled %v", got)
		}
		if err := e.Discard(t.Context(), wrong.ID); err != nil {
			t.Fatal(err)
		}
		if err := e.Discard(t.Context(), wrong.ID); !errors.Is(err, neuron.ErrNoDeadLetter) {
			t.Errorf("second discard: %v", err)
		}
		if letters := dead(t, e); len(letters) != 1 || letters[0].ID != garbage.ID {
			t.Errorf("left %+v", letters)
		}
	})
}

// N-02: mistakes in the lists are found at the start, an unlisted send settles its turn.
func TestTypesAreListed(t *testing.T) {
	b := fake()
	k := neuron.NewKind("test")
	neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error {
		return neuron.Send(turn, id("b"), neuron.NewType[note]("test.unlisted.v1"), n)
	})
	for name, o := range map[string]engine.Options{
		"listed twice": {Types: []string{"a", "a"}}, "not listed": {Kinds: []*neuron.Kind{k}, Types: []string{"a"}},
		"kind": {Kinds: []*neuron.Kind{k, k}, Types: types}, "no name": {Kinds: []*neuron.Kind{neuron.NewKind("")}},
	} {
		o.Store = b.store
		if _, err := engine.New(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	twice := neuron.NewKind("twice")
	neuron.Handle(twice, noteType, func(*neuron.Turn, note) error { return nil })
	neuron.Handle(twice, noteType, func(*neuron.Turn, note) error { return nil })
	if _, err := engine.New(engine.Options{Store: b.store, Kinds: []*neuron.Kind{twice}, Types: types}); err == nil {
		t.Error("two handlers of one alias: no error")
	}
	e := start(t, b, engine.Options{Kinds: []*neuron.Kind{k}})
	var refusal *neuron.Refusal
	if err := e.Deliver(t.Context(), fresh(t, id("a"), "")); !errors.As(err, &refusal) || refusal.Code != neuron.Refused {
		t.Errorf("unlisted send: %v", err)
	}
	// N-01
	for _, to := range []neuron.ID{{}, {Owner: "o", Kind: "k"}, {Owner: "a/b", Kind: "test", Key: "k"}} {
		if err := e.Deliver(t.Context(), fresh(t, to, "")); !errors.As(err, &refusal) {
			t.Errorf("to %+v: %v", to, err)
		}
	}
}

// N-04: what a handler or a caller does to its value changes no journal.
func TestPayloadIsASnapshot(t *testing.T) {
	b := fake()
	k := neuron.NewKind("test")
	raw := neuron.NewType[map[string]any]("test.raw.v1")
	entered, leave := make(chan struct{}, 2), make(chan struct{})
	neuron.Handle(k, raw, func(turn *neuron.Turn, m map[string]any) error {
		entered <- struct{}{}
		<-leave
		m["text"] = "changed"
		return nil
	})
	e := start(t, b, engine.Options{Kinds: []*neuron.Kind{k}, Types: []string{raw.Alias()}})
	var wg sync.WaitGroup
	var ds []neuron.Delivery
	for i := range 2 {
		d := fresh(t, id("a"), "true")
		d.Alias = raw.Alias()
		ds = append(ds, d)
		wg.Go(func() { deliver(t, e, d) })
		if i == 0 {
			<-entered
		}
	}
	waitFor(t, e, func(s engine.Stats) bool { return s.Waiting == 1 })
	for _, d := range ds { // one is being handled, one waits
		copy(d.Payload, `{"text":"fals"}`)
	}
	close(leave)
	wg.Wait()
	for _, entry := range page(t, e, id("a"), neuron.In).Entries {
		if got := string(entry.Payload); got != `{"text":"true"}` {
			t.Errorf("the journal holds %s", got)
		}
	}
}

// N-07: one handler of a neuron at a time; different neurons overlap and share commits (N-34).
func TestOneTurnAtATime(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		var mu sync.Mutex
		inside := map[neuron.ID]int{}
		k := neuron.NewKind("test")
		neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error {
			mu.Lock()
			inside[turn.Self()]++
			if inside[turn.Self()] > 1 {
				t.Errorf("two handlers of %s", turn.Self())
			}
			mu.Unlock()
			sum, err := neuron.State(turn, sumType, nil)
			if err != nil {
				return err
			}
			err = neuron.SetState(turn, sumType, sum+1)
			turn.Write(put{fmt.Sprint(turn.Self().Key, sum), ""})
			mu.Lock()
			inside[turn.Self()]--
			mu.Unlock()
			return err
		})
		e := start(t, b, engine.Options{Kinds: []*neuron.Kind{k}})
		var wg sync.WaitGroup
		for i := range 400 {
			d := fresh(t, id(fmt.Sprint("n", i%10)), "")
			wg.Go(func() {
				if err := e.Deliver(t.Context(), d); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := len(b.rows(t)); n != 400 {
			t.Errorf("%d different states, want 400", n)
		}
		if s := e.Stats(); s.Turns != 400 || s.Groups >= 400 {
			t.Errorf("%d turns in %d groups", s.Turns, s.Groups)
		}
	})
}

// N-34: one failing turn of a group does not fail the others.
func TestFailingTurnInAGroup(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		k := neuron.NewKind("test")
		gate := make(chan struct{})
		neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error {
			turn.Write(put{turn.Self().Key, "x"})
			if n.Text == "bad" {
				turn.Write(swap{"nothing", "a", "b"})
			}
			return nil
		})
		hold := &holding{Store: b.store, gate: gate}
		e := start(t, b, engine.Options{Store: hold, Kinds: []*neuron.Kind{k}})
		errs := make([]error, 6)
		var wg sync.WaitGroup
		for i := range errs {
			text := "good"
			if i == 3 {
				text = "bad"
			}
			d := fresh(t, id(fmt.Sprint("n", i)), text)
			wg.Go(func() { errs[i] = e.Deliver(t.Context(), d) })
		}
		waitFor(t, e, func(s engine.Stats) bool { return s.Records == 6 })
		close(gate)
		wg.Wait()
		for i, err := range errs {
			if (i == 3) != errors.Is(err, errSwap) || i != 3 && err != nil {
				t.Errorf("caller %d: %v", i, err)
			}
		}
		if n := len(b.rows(t)); n != 5 {
			t.Errorf("%d rows, want 5: %v", n, b.rows(t))
		}
		deliver(t, e, fresh(t, id("n3"), "good")) // nothing of the failed turn is left in memory
		stop(t, e)
		if len(b.rows(t)) != 6 {
			t.Errorf("rows %v", b.rows(t))
		}
	})
}

// N-12: handlers read the injected clock.
func TestClockIsInjected(t *testing.T) {
	b := fake()
	at := time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC)
	k := neuron.NewKind("test")
	neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error {
		turn.Write(put{"now", turn.Now().Format(time.RFC3339)})
		return nil
	})
	e := start(t, b, engine.Options{Kinds: []*neuron.Kind{k}, Now: func() time.Time { return at }})
	deliver(t, e, neuron.Delivery{ID: ident.New(at), Alias: noteType.Alias(), Target: id("a"), Payload: []byte(`{}`)})
	if got := b.rows(t)["now"]; got != "2031-02-03T04:05:06Z" {
		t.Errorf("now is %q", got)
	}
	if in := page(t, e, id("a"), neuron.In).Entries[0]; !in.At.Equal(at) || in.Correlation != in.ID {
		t.Errorf("entry %+v", in)
	}
}

// N-15, N-16: a watcher hears of each entry after its commit, without polling, from any cursor.
func TestWatch(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		k := neuron.NewKind("test")
		neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error { return neuron.Send(turn, id("b"), otherType, n) })
		neuron.Handle(k, otherType, func(turn *neuron.Turn, n note) error { return nil })
		e := start(t, b, engine.Options{Kinds: []*neuron.Kind{k}, Generation: "g"})
		for i := range 3 {
			deliver(t, e, fresh(t, id("a"), fmt.Sprint(i)))
		}
		in := e.Watch(id("a"), neuron.In, feed.Cursor{Generation: "g", Seq: 2})
		out := e.Watch(id("a"), neuron.Out, feed.Cursor{})
		defer in.Close()
		defer out.Close()
		for i := 3; i < 600; i++ {
			deliver(t, e, fresh(t, id("a"), fmt.Sprint(i)))
		}
		for w, first := range map[*feed.Watcher[neuron.Entry]]int{in: 2} {
			for i := first; i < 600; i++ {
				ev, err := w.Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if ev.Reset != nil {
					i = int(ev.Reset.First) - 2
					continue
				}
				if ev.Seq != uint64(i+1) || string(ev.Value.Payload) != fmt.Sprintf(`{"text":"%d"}`, i) {
					t.Fatalf("entry %d: %+v", i, ev)
				}
			}
		}
		ev, err := out.Next(t.Context())
		if err != nil || ev.Reset == nil || ev.Reset.Last != 600 || ev.Reset.First != 89 || ev.Reset.Tallies["test.other.v1"] != 600 {
			t.Fatalf("a reader from the start got %+v, %v", ev, err)
		}
		if ev, err := out.Next(t.Context()); err != nil || ev.Seq != 89 {
			t.Fatalf("after the reset: %+v, %v", ev, err)
		}
	})
}
