package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/engine"
	"soma/internal/neuron/neurontest"
)

// wires is a relay whose connections are rows of the test's table, so that the guard is a real one.
type wires struct {
	b *base
	t testing.TB

	mu   sync.Mutex
	list []wire
	// change is what a connection does on the way; nil: nothing.
	change func(d *neuron.Delivery) (alias string, payload json.RawMessage, err error)
}

type wire struct {
	id             ident.ID
	source, target neuron.ID
	alias          string
}

func (w wire) row() string { return "wire/" + w.id.String() }

// cut removes a connection.
type cut struct{ key string }

func (cut) SQL() string                     { return "update test_row set value = 'cut' where key = ?" }
func (c cut) Args() []any                   { return []any{c.key} }
func (c cut) Apply(t *neurontest.Table) int { t.Set(c.key, "cut"); return 1 }

// through is the guard of a delivery that a connection carries.
type through struct{ key string }

func (through) SQL() string {
	return "update test_row set value = 'live' where key = ? and value = 'live'"
}
func (p through) Args() []any { return []any{p.key} }
func (p through) Guard() error {
	return &neuron.Refusal{Code: neuron.MissingConnection, Err: errors.New(p.key)}
}
func (p through) LockKey() string { return p.key }
func (p through) Apply(t *neurontest.Table) int {
	if v, _ := t.Get(p.key); v != "live" {
		return 0
	}
	return 1
}

// live reads a connection's row.
func (w *wires) live(ctx context.Context, c wire) (live bool, err error) {
	if w.b.fake != nil {
		return w.b.fake.Rows()[c.row()] == "live", nil
	}
	err = w.b.store.Query(ctx, "select value from test_row where key = ?", []any{c.row()}, func(scan func(...any) error) error {
		var v string
		err := scan(&v)
		live = v == "live"
		return err
	})
	return live, err
}

func (w *wires) Connections(ctx context.Context, d *neuron.Delivery, limit int) (all []neuron.Receiver, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.list {
		if c.source != d.Caller || c.alias != d.Alias || len(all) == limit {
			continue
		}
		live, err := w.live(ctx, c)
		if err != nil {
			return nil, err
		}
		if live {
			all = append(all, neuron.Receiver{Target: c.target, Via: c.id})
		}
	}
	return all, nil
}

func (w *wires) Carry(ctx context.Context, d *neuron.Delivery, _ time.Time) (neuron.Carried, error) {
	one := wire{id: d.Via}
	guard := through{one.row()}
	live, err := w.live(ctx, one)
	if err != nil {
		return neuron.Carried{}, err
	}
	if !live {
		return neuron.Carried{}, guard.Guard()
	}
	c := neuron.Carried{Alias: d.Alias, Payload: d.Payload, Guard: guard}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.change != nil {
		c.Alias, c.Payload, err = w.change(d)
	}
	return c, err
}

// add makes connections from source, one to each target.
func (w *wires) add(e *engine.Engine, source neuron.ID, alias string, targets ...neuron.ID) []wire {
	w.t.Helper()
	var added []wire
	var ops []neuron.Op
	for _, to := range targets {
		c := wire{id: ident.New(time.Now()), source: source, target: to, alias: alias}
		added, ops = append(added, c), append(ops, put{c.row(), "live"})
	}
	if err := e.Write(w.t.Context(), 0, ops...); err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(w.list, added...)
	return added
}

func (w *wires) cut(e *engine.Engine, c wire) {
	w.t.Helper()
	if err := e.Write(w.t.Context(), 0, cut{c.row()}); err != nil {
		w.t.Fatal(err)
	}
}

func keys(prefix string, n int) (ids []neuron.ID) {
	for i := range n {
		ids = append(ids, id(fmt.Sprint(prefix, i)))
	}
	return ids
}

// emitter is a kind whose neurons emit what a note says, and log what they hear.
func emitter(hear func(*neuron.Turn, note) error) *neuron.Kind {
	k := neuron.NewKind("test")
	neuron.Handle(k, noteType, func(t *neuron.Turn, n note) error { return neuron.Emit(t, otherType, n) })
	neuron.Handle(k, otherType, hear)
	return k
}

// N-21: an emission goes once to every broadcast handler of its alias and to every live connection of its sender, in the
// sender's owner; the sender's outgoing feed has one fact, which says to how many. N-19: each is one hop away.
func TestEmitFansOut(t *testing.T) {
	for _, n := range []int{10, 1000} {
		onBoth(t, func(t *testing.T, b *base) {
			var mu sync.Mutex
			heard := map[string]int{}
			hear := func(turn *neuron.Turn, msg note) error {
				mu.Lock()
				defer mu.Unlock()
				d := turn.Delivery()
				heard[d.Target.String()]++
				if msg.Text != "fact" || d.Depth != 1 || d.Caller != id("source") || d.Correlation != d.Causation || d.Seq != 1 {
					t.Errorf("%s got %+v of %+v", d.Target, msg, d)
				}
				return nil
			}
			k := emitter(hear)
			listener := neuron.NewKind("listener")
			neuron.Handle(listener, otherType, hear)
			neuron.Broadcast(listener, otherType, func(owner string, msg note) (string, bool) { return "of " + msg.Text, owner == "me" })
			deaf := neuron.NewKind("deaf")
			neuron.Handle(deaf, otherType, hear)
			neuron.Broadcast(deaf, otherType, func(string, note) (string, bool) { return "", false })
			w := &wires{b: b, t: t}
			limits := quick()
			limits.Receivers = n + 1
			e := start(t, b, engine.Options{Kinds: []*neuron.Kind{k, listener, deaf}, Relay: w, Limits: limits})
			w.add(e, id("source"), otherType.Alias(), keys("sink", n)...)
			w.add(e, id("another source"), otherType.Alias(), id("nobody"))
			w.add(e, id("source"), noteType.Alias(), id("nobody"))
			deliver(t, e, fresh(t, id("source"), "fact"))
			quiet(t, e)
			mu.Lock()
			if len(heard) != n+1 || heard["me/listener/of fact"] != 1 || heard["me/test/sink7"] != 1 {
				t.Errorf("%d neurons heard it", len(heard))
			}
			for who, times := range heard {
				if times != 1 {
					t.Errorf("%s heard it %d times", who, times)
				}
			}
			mu.Unlock()
			out := page(t, e, id("source"), neuron.Out)
			if len(out.Entries) != 1 || out.Entries[0].Emitted == nil || out.Entries[0].Emitted.Receivers != n+1 ||
				!out.Entries[0].Target.IsZero() || string(out.Entries[0].Payload) != `{"text":"fact"}` {
				t.Errorf("the sender's feed: %+v", out.Entries)
			}
			// One more than may be is refused whole.
			w.add(e, id("source"), otherType.Alias(), id("too many"))
			var refusal *neuron.Refusal
			if err := e.Deliver(t.Context(), fresh(t, id("source"), "fact")); !errors.As(err, &refusal) || refusal.Code != neuron.TooManyReceivers {
				t.Errorf("%d receivers: %v", n+2, err)
			}
			quiet(t, e)
			if heard["me/test/too many"] != 0 || len(page(t, e, id("source"), neuron.Out).Entries) != 1 {
				t.Error("a refused emission went somewhere")
			}
		})
	}
}

// N-21: an emission that nobody hears is a fact all the same.
func TestEmitToNobody(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		e := start(t, b, engine.Options{Kinds: []*neuron.Kind{emitter(func(*neuron.Turn, note) error { return errBroken })}})
		deliver(t, e, fresh(t, id("source"), "alone"))
		quiet(t, e)
		out := page(t, e, id("source"), neuron.Out)
		if len(out.Entries) != 1 || out.Entries[0].Emitted == nil || out.Entries[0].Emitted.Receivers != 0 || out.Tallies[otherType.Alias()] != 1 {
			t.Errorf("%+v", out)
		}
	})
}

// N-40: a rule that names no neuron that can be is the sender's settled refusal. N-26: an empty identity has its own code.
func TestBroadcastRules(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		k := emitter(func(*neuron.Turn, note) error { return nil })
		neuron.Broadcast(k, otherType, func(owner string, n note) (string, bool) {
			if n.Text == "panic" {
				panic("rule")
			}
			return n.Text, true
		})
		e := start(t, b, engine.Options{Kinds: []*neuron.Kind{k}})
		for text, code := range map[string]neuron.Code{"": neuron.EmptyIdentity, "a/b": neuron.Refused} {
			var refusal *neuron.Refusal
			if err := e.Deliver(t.Context(), fresh(t, id("source"), text)); !errors.As(err, &refusal) || refusal.Code != code {
				t.Errorf("key %q: %v", text, err)
			}
		}
		var refusal *neuron.Refusal
		err := e.Deliver(t.Context(), fresh(t, id("source"), "panic"))
		if !errors.As(err, &refusal) || refusal.Code != neuron.Refused || !strings.Contains(err.Error(), "panicked") {
			t.Errorf("a rule that panics: %v", err)
		}
		deliver(t, e, fresh(t, id("source"), "good"))
		quiet(t, e)
		if in := page(t, e, id("good"), neuron.In); len(in.Entries) != 1 {
			t.Errorf("%+v", in.Entries)
		}
	})
	deaf, twice := neuron.NewKind("deaf"), emitter(func(*neuron.Turn, note) error { return nil })
	rule := func(string, note) (string, bool) { return "", false }
	neuron.Broadcast(deaf, otherType, rule)
	neuron.Broadcast(twice, otherType, rule)
	neuron.Broadcast(twice, otherType, rule)
	for _, k := range []*neuron.Kind{deaf, twice, neuron.NewKind(neuron.ClientKind)} {
		if _, err := engine.New(engine.Options{Store: fake().store, Kinds: []*neuron.Kind{k}, Types: types}); err == nil {
			t.Errorf("kind %s was wired", k.Name)
		}
	}
}

// N-19: facts that go round through connections end at the 17th hop, with a settled error of Emit.
func TestConnectionLoopsEndByDepth(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		var seen log
		k := neuron.NewKind("test")
		neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error {
			seen.add("%s %d", turn.Self().Key, turn.Delivery().Depth)
			err := neuron.Emit(turn, noteType, n)
			var refusal *neuron.Refusal
			if wrong := errors.As(err, &refusal) && refusal.Code == neuron.TooDeep; wrong != (turn.Delivery().Depth == 16) {
				t.Errorf("depth %d: %v", turn.Delivery().Depth, err)
			}
			return err
		})
		w := &wires{b: b, t: t}
		e := start(t, b, engine.Options{Kinds: []*neuron.Kind{k}, Relay: w})
		w.add(e, id("a"), noteType.Alias(), id("b"))
		w.add(e, id("b"), noteType.Alias(), id("a"))
		deliver(t, e, fresh(t, id("a"), "round"))
		quiet(t, e)
		if got := seen.all(); len(got) != 17 || got[16] != "a 16" || got[15] != "b 15" {
			t.Errorf("%d hops: %v", len(got), got)
		}
	})
}

// N-24: a connection that is removed while its fact is queued carries nothing: the target settles the delivery with a code,
// sees nothing of the payload, and the sender hears of it.
func TestRemovedWhileQueued(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		var seen log
		entered, leave := make(chan struct{}), make(chan struct{})
		k := emitter(func(_ *neuron.Turn, n note) error {
			seen.add("%s", n.Text)
			if n.Text == "first" {
				close(entered)
				<-leave
			}
			return nil
		})
		w := &wires{b: b, t: t}
		e := start(t, b, engine.Options{Kinds: []*neuron.Kind{k}, Relay: w})
		c := w.add(e, id("source"), otherType.Alias(), id("sink"))[0]
		first, err := otherType.New(id("sink"), note{Text: "first"}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- e.Deliver(t.Context(), first) }()
		<-entered
		deliver(t, e, fresh(t, id("source"), "secret")) // queued behind the first one
		w.cut(e, c)
		close(leave)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		quiet(t, e)
		refusedRelay(t, e, &seen, c)
	})
}

// N-24: a connection that is removed while its target's handler runs carries nothing either: the guard is in the commit. What
// the handler would have kept of a refusal, such as the ends of its calls, stays here too.
func TestRemovedWhileHandled(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		var seen log
		entered, leave := make(chan struct{}), make(chan struct{})
		k := emitter(func(turn *neuron.Turn, n note) error {
			turn.Write(put{"effect", n.Text})
			turn.Anyway(neuron.Step{Ops: []neuron.Op{put{"anyway", "kept"}}})
			close(entered)
			<-leave
			return nil
		})
		w := &wires{b: b, t: t}
		e := start(t, b, engine.Options{Kinds: []*neuron.Kind{k}, Relay: w})
		c := w.add(e, id("source"), otherType.Alias(), id("sink"))[0]
		deliver(t, e, fresh(t, id("source"), "secret"))
		<-entered
		w.cut(e, c)
		close(leave)
		quiet(t, e)
		seen.add("first")
		refusedRelay(t, e, &seen, c)
		if v, ok := b.rows(t)["effect"]; ok {
			t.Errorf("the handler's row stayed: %q", v)
		}
		if v := b.rows(t)["anyway"]; v != "kept" {
			t.Errorf("what is kept of a refusal went: %q", v)
		}
	})
}

// refusedRelay checks what is left of an emission whose only connection was removed in time.
func refusedRelay(t *testing.T, e *engine.Engine, seen *log, c wire) {
	t.Helper()
	if got := seen.all(); !slices.Equal(got, []string{"first"}) {
		t.Errorf("handled: %v", got)
	}
	in := page(t, e, id("sink"), neuron.In)
	last := in.Entries[len(in.Entries)-1]
	if last.Settled != neuron.MissingConnection || last.Via != c.id || len(last.Payload) > 0 || !last.Content.IsZero() {
		t.Errorf("the target's feed: %+v", last)
	}
	out := page(t, e, id("source"), neuron.Out)
	if n := len(out.Entries); n != 2 || out.Entries[1].Ended == nil || out.Entries[1].Ended.Code != neuron.MissingConnection ||
		out.Entries[1].Ended.Target != id("sink") {
		t.Errorf("the sender's feed: %+v", out.Entries)
	}
	if len(dead(t, e)) > 0 {
		t.Error("a refused relay made a dead letter")
	}
}

// N-24: what a connection changes on the way is what the target handles and has in its feed; the queued row stays as it was,
// so a retry and a re-driven dead letter ask the connection again.
func TestRelayChanges(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		var seen log
		tries := 0
		k := neuron.NewKind("test")
		neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error {
			if turn.Self() == id("source") {
				return neuron.Emit(turn, otherType, n)
			}
			if tries++; tries == 1 {
				return errBroken
			}
			seen.add("%s", n.Text)
			return nil
		})
		calls := 0
		w := &wires{b: b, t: t, change: func(d *neuron.Delivery) (string, json.RawMessage, error) {
			calls++
			if string(d.Payload) != `{"text":"fact"}` || d.Alias != otherType.Alias() {
				t.Errorf("carried twice: %s %s", d.Alias, d.Payload)
			}
			return noteType.Alias(), fmt.Appendf(nil, `{"text":"fact %d"}`, calls), nil
		}}
		e := start(t, b, engine.Options{Kinds: []*neuron.Kind{k}, Relay: w})
		w.add(e, id("source"), otherType.Alias(), id("sink"))
		deliver(t, e, fresh(t, id("source"), "fact"))
		quiet(t, e)
		in := page(t, e, id("sink"), neuron.In)
		if got := seen.all(); !slices.Equal(got, []string{"fact 2"}) || len(in.Entries) != 1 || in.Entries[0].Alias != noteType.Alias() ||
			string(in.Entries[0].Payload) != `{"text":"fact 2"}` {
			t.Errorf("%v, %+v", got, in.Entries)
		}
		// Now it leads to an alias that the target does not handle.
		w.mu.Lock()
		good := w.change
		w.change = func(d *neuron.Delivery) (string, json.RawMessage, error) { return endType.Alias(), d.Payload, nil }
		w.mu.Unlock()
		deliver(t, e, fresh(t, id("source"), "fact"))
		quiet(t, e)
		letters := dead(t, e)
		if len(letters) != 1 || letters[0].Code != neuron.NoHandler || letters[0].Alias != otherType.Alias() || string(letters[0].Payload) != `{"text":"fact"}` {
			t.Fatalf("%+v", letters)
		}
		w.mu.Lock()
		w.change = good
		w.mu.Unlock()
		if _, err := e.Redrive(t.Context(), letters[0].ID); err != nil {
			t.Fatal(err)
		}
		quiet(t, e)
		if got := seen.all(); !slices.Equal(got, []string{"fact 2", "fact 3"}) {
			t.Errorf("%v", got)
		}
	})
}

// N-17: what one sender emits comes to one target in order, through a connection whose target fails at first.
func TestEmissionsKeepTheirOrder(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		var seen log
		failing := map[string]bool{"3": true, "7": true}
		k := emitter(func(turn *neuron.Turn, n note) error {
			if failing[n.Text] {
				delete(failing, n.Text)
				return errBroken
			}
			seen.add("%s", n.Text)
			return nil
		})
		w := &wires{b: b, t: t}
		e := start(t, b, engine.Options{Kinds: []*neuron.Kind{k}, Relay: w})
		w.add(e, id("source"), otherType.Alias(), id("sink"))
		var want []string
		for i := range 20 {
			want = append(want, fmt.Sprint(i))
			deliver(t, e, fresh(t, id("source"), want[i]))
		}
		quiet(t, e)
		if got := seen.all(); !slices.Equal(got, want) {
			t.Errorf("%v", got)
		}
	})
}

// N-33, N-21: a crash between the commit of an emission and the end of its drain loses no receiver and doubles none.
func TestEmissionSurvivesAKill(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		const n = 10
		k := emitter(func(turn *neuron.Turn, msg note) error {
			turn.Write(put{turn.Self().Key + " " + msg.Text, turn.Delivery().ID.String()})
			return nil
		})
		w := &wires{b: b, t: t}
		o := engine.Options{Kinds: []*neuron.Kind{k}, Relay: w}
		for before := int64(3); before < 9; before++ { // 1: the connections, 2: the emission
			l := liveUntil(t, b, o, "", before)
			source := id(fmt.Sprint("source", before))
			w.add(l.Engine, source, otherType.Alias(), keys(fmt.Sprint("sink", before, "-"), n)...)
			deliver(t, l.Engine, fresh(t, source, "fact"))
			l.kill(t, b)
			e := live(t, b, o, "")
			quiet(t, e.Engine)
			got := 0
			for key := range b.rows(t) {
				if strings.HasPrefix(key, fmt.Sprint("sink", before, "-")) {
					got++
				}
			}
			for _, sink := range keys(fmt.Sprint("sink", before, "-"), n) {
				if in := page(t, e.Engine, sink, neuron.In); len(in.Entries) != 1 || in.Entries[0].Settled != "" {
					t.Errorf("killed before commit %d: %s has %+v", before, sink, in.Entries)
				}
			}
			if got != n {
				t.Errorf("killed before commit %d: %d of %d receivers", before, got, n)
			}
			e.kill(t, b)
		}
	})
}

// N-46: the copies of a large payload to many receivers are one: rows refer to it, and it goes with the last of them.
func TestLargeEmissionIsKeptOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		text := strings.Repeat("x", 60<<10)
		var mu sync.Mutex
		got := 0
		k := emitter(func(_ *neuron.Turn, n note) error {
			mu.Lock()
			defer mu.Unlock()
			if n.Text == text {
				got++
			}
			return nil
		})
		w := &wires{b: b, t: t}
		var kept []neuron.Content
		e := start(t, b, engine.Options{Kinds: []*neuron.Kind{k}, Relay: w, Committed: func(group []*neuron.Record) {
			for _, rec := range group {
				kept = append(kept, rec.Contents...)
			}
		}})
		w.add(e, id("source"), otherType.Alias(), keys("sink", 10)...)
		deliver(t, e, fresh(t, id("source"), text))
		quiet(t, e)
		out, in := page(t, e, id("source"), neuron.Out), page(t, e, id("sink3"), neuron.In)
		if got != 10 || out.Entries[0].Content.IsZero() || len(out.Entries[0].Payload) > 0 || len(in.Entries) != 1 {
			t.Errorf("%d got it; %+v", got, out.Entries)
		}
		if len(kept) != 1 || !kept[0].Payload || kept[0].ID != out.Entries[0].Content {
			t.Errorf("kept: %d contents, %+v", len(kept), kept[0].Payload)
		}
		var refusal *neuron.Refusal
		if err := e.Deliver(t.Context(), fresh(t, id("source"), strings.Repeat("x", 64<<10))); !errors.As(err, &refusal) ||
			!errors.Is(err, neuron.ErrPayloadTooLarge) {
			t.Errorf("an emission over the bound: %v", err)
		}
	})
}
