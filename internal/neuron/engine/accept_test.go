package engine_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/engine"
)

// An idle target takes an accepted delivery at once, its ops in the same commit.
func TestAcceptOnAnIdleNeuron(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		k := neuron.NewKind("test")
		neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error {
			turn.Write(put{"turn", "x"})
			return nil
		})
		var groups [][]*neuron.Record
		e := start(t, b, engine.Options{Kinds: []*neuron.Kind{k}, Committed: func(g []*neuron.Record) { groups = append(groups, g) }})
		d := fresh(t, id("a"), "")
		if err := e.Accept(t.Context(), d, put{"accepted", "1"}); err != nil {
			t.Fatal(err)
		}
		if len(groups) != 1 || len(groups[0]) != 1 {
			t.Errorf("%d commits", len(groups))
		}
		// A repeat runs nothing but commits its ops.
		if err := e.Accept(t.Context(), d, put{"accepted", "2"}, put{"again", "1"}); err != nil {
			t.Fatal(err)
		}
		if got := b.rows(t); !maps.Equal(got, map[string]string{"turn": "x", "accepted": "1", "again": "1"}) {
			t.Errorf("rows %v", got)
		}
		if in := page(t, e, id("a"), neuron.In); in.Last != 1 {
			t.Errorf("%d turns", in.Last)
		}
		// N-09: a refusal settles it; that is an acceptance all the same.
		unknown := fresh(t, id("a"), "")
		unknown.Alias = "test.unknown.v1"
		if err := e.Accept(t.Context(), unknown, put{"refused", "1"}); err != nil {
			t.Fatal(err)
		}
		if b.rows(t)["refused"] != "1" || len(dead(t, e)) != 1 {
			t.Errorf("rows %v, dead %v", b.rows(t), dead(t, e))
		}
		if err := e.Accept(t.Context(), fresh(t, id("a"), ""), swap{"nothing", "a", "b"}); !errors.Is(err, errSwap) {
			t.Errorf("a guard that fails: %v", err)
		}
	})
}

// Where the neuron is busy or its handler fails, the acceptance is durable before it is answered, and the drain does the rest.
func TestAcceptOnABusyNeuron(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		entered, leave := make(chan struct{}), make(chan struct{})
		k := neuron.NewKind("test")
		failures := 3
		var seen log
		neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error {
			switch {
			case n.Text == "slow":
				entered <- struct{}{}
				<-leave
			case n.Text == "failing" && failures > 0:
				failures--
				return errBroken
			}
			seen.add("%s", n.Text)
			turn.Write(put{"turn " + n.Text, fmt.Sprint(len(n.Text))})
			return nil
		})
		e := start(t, b, engine.Options{Kinds: []*neuron.Kind{k}})
		var wg sync.WaitGroup
		slow := fresh(t, id("a"), "slow")
		wg.Go(func() { deliver(t, e, slow) })
		<-entered
		queued := fresh(t, id("a"), "queued")
		for i := range 2 { // the second one finds the row waiting
			if err := e.Accept(t.Context(), queued, put{fmt.Sprint("accepted ", i), ""}); err != nil {
				t.Fatal(err)
			}
		}
		if rows, err := b.store.Outbox(t.Context(), neuron.AllPlaces(), ident.ID{}, 10); err != nil || len(rows) != 1 || rows[0].ID != queued.ID {
			t.Errorf("rows %+v, %v", rows, err)
		}
		close(leave)
		wg.Wait()
		quiet(t, e)
		large := fresh(t, id("a"), strings.Repeat("x", 100_000))
		large.Payload = []byte(`{"text":"failing","more":"` + strings.Repeat("x", 100_000) + `"}`)
		if err := e.Accept(t.Context(), large, put{"accepted large", ""}); err != nil {
			t.Fatal(err)
		}
		if _, ok := b.rows(t)["accepted large"]; !ok {
			t.Error("the failed attempt took the ops with it")
		}
		quiet(t, e)
		if got := seen.all(); len(got) != 3 || got[2] != "failing" {
			t.Errorf("handled %v", got)
		}
		if n := len(b.rows(t)); n != 6 {
			t.Errorf("rows %v", b.rows(t))
		}
	})
}

// Many acceptances of one id at once are one delivery.
func TestAcceptOfOneIDAtOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		var seen log
		k := neuron.NewKind("test")
		neuron.Handle(k, noteType, func(_ *neuron.Turn, n note) error { seen.add("%s", n.Text); return nil })
		e := start(t, b, engine.Options{Kinds: []*neuron.Kind{k}})
		d := fresh(t, id("a"), "x")
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				if err := e.Accept(t.Context(), d, put{fmt.Sprint(i), ""}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		quiet(t, e)
		if len(seen.all()) != 1 || len(b.rows(t)) != 20 {
			t.Errorf("handled %v, rows %v", seen.all(), b.rows(t))
		}
	})
}

// N-46: a large payload from outside is stored once by its turn's commit and travels by reference. N-14: one that a handler
// sends is refused there.
func TestLargePayload(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		k := neuron.NewKind("test")
		var lengths []int
		neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error {
			lengths = append(lengths, len(n.Text))
			if len(n.Text) > 64<<10 {
				if err := neuron.Send(turn, id("b"), noteType, n); !errors.Is(err, neuron.ErrPayloadTooLarge) {
					t.Errorf("a large send: %v", err)
				}
			}
			return nil
		})
		e := start(t, b, engine.Options{Kinds: []*neuron.Kind{k}})
		d := fresh(t, id("a"), strings.Repeat("x", 300_000))
		deliver(t, e, d)
		entry := page(t, e, id("a"), neuron.In).Entries[0]
		if entry.Content.IsZero() || len(entry.Payload) != 0 || len(lengths) != 1 || lengths[0] != 300_000 {
			t.Fatalf("entry %+v, lengths %v", entry, lengths)
		}
		var kept []byte
		err := b.store.Query(t.Context(), neuron.SelectContent, []any{entry.Content[:]}, func(scan func(...any) error) error { return scan(&kept) })
		if err != nil || string(kept) != string(d.Payload) {
			t.Errorf("%d bytes kept, %v", len(kept), err)
		}
	})
}

// A write without a turn is committed before it is answered; M-05 keeps it for what no turn can do.
func TestWrite(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		e := start(t, b, engine.Options{})
		if err := e.Write(t.Context(), 7, put{"a", "1"}, swap{"a", "1", "2"}); err != nil {
			t.Fatal(err)
		}
		if err := e.Write(t.Context(), 7, put{"b", "1"}, swap{"a", "1", "3"}); !errors.Is(err, errSwap) {
			t.Errorf("guard: %v", err)
		}
		if got := b.rows(t); !maps.Equal(got, map[string]string{"a": "2"}) {
			t.Errorf("rows %v", got)
		}
		stop(t, e)
		if err := e.Write(t.Context(), 7, put{"c", "1"}); !errors.Is(err, neuron.ErrStopped) {
			t.Errorf("after the stop: %v", err)
		}
		if err := e.Deliver(t.Context(), fresh(t, id("a"), "")); !errors.Is(err, neuron.ErrStopped) {
			t.Errorf("deliver after the stop: %v", err)
		}
		if err := e.Accept(t.Context(), fresh(t, id("a"), "")); !errors.Is(err, neuron.ErrStopped) {
			t.Errorf("accept after the stop: %v", err)
		}
	})
}
