package call_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"soma/ident"
	"soma/internal/feed"
	"soma/internal/neuron"
	"soma/internal/neuron/call"
)

// N-27, N-28: the request is in the journal before the method runs, the end comes with the caller's turn; the target accepts
// a delivery of its own; what is sent inside has the same correlation and is caused by the request; nothing is left.
func TestCallIsToldInTheJournals(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		var w *world
		k := kind(func(turn *neuron.Turn, n note) error {
			if err := neuron.Send(turn, id("before"), sentType, note{}); err != nil {
				return err
			}
			got, err := call.Do(turn, echo, id("b"), n)
			if err != nil || got.Text != "hello back" {
				return fmt.Errorf("%+v, %w", got, err)
			}
			if got, err = call.Do(turn, echo, id("c"), n); err != nil {
				return err
			}
			turn.Write(put{"caller", got.Text})
			return neuron.Send(turn, id("after"), sentType, note{})
		})
		call.Serve(k, echo, func(turn *neuron.Turn, n note) (note, error) {
			if facts := w.facts(id("a")); len(facts) == 0 || facts[len(facts)-1].alias != "requested" || facts[len(facts)-1].Target != turn.Self() {
				t.Errorf("the method runs and the caller tells %+v", facts)
			}
			turn.Write(put{turn.Self().Key, n.Text})
			return note{Text: n.Text + " back"}, neuron.Send(turn, id("inside"), sentType, note{})
		})
		w = start(t, b, k)
		d := fresh(t, id("a"), "hello")
		if err := w.Deliver(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		w.wantClean()
		facts := w.wantFacts(id("a"), "requested", "requested", "completed", "completed")
		for i, f := range facts {
			target := []string{"b", "c"}[i%2]
			if f.Contract != "test.echo" || f.Method != "say" || f.Target != id(target) || f.Request != facts[i%2].Request ||
				f.Correlation != d.ID || f.Causation != d.ID || f.Caller != id("a") {
				t.Errorf("fact %d: %+v", i, f)
			}
		}
		out := w.entries(id("a"), neuron.Out) // steps come before what the turn sends
		for i, alias := range []string{call.RequestedAlias, call.RequestedAlias, sentType.Alias(), sentType.Alias(), call.CompletedAlias, call.CompletedAlias} {
			if out[i].Alias != alias {
				t.Errorf("entry %d is %s, want %s", i, out[i].Alias, alias)
			}
		}
		if in := w.entries(id("a"), neuron.In); len(in) != 1 {
			t.Errorf("the caller's incoming feed: %+v", in)
		}
		in := w.entries(id("b"), neuron.In)
		if len(in) != 1 || in[0].Alias != echo.Alias() || in[0].Payload != nil || in[0].Request == nil || in[0].Request.ID != facts[0].Request ||
			in[0].Caller != id("a") || in[0].Correlation != d.ID || in[0].Causation != d.ID || in[0].Depth != 1 {
			t.Errorf("the target accepted %+v", in)
		}
		if out := w.entries(id("b"), neuron.Out); len(out) != 1 || out[0].Correlation != d.ID || out[0].Causation != in[0].ID || out[0].Depth != 2 {
			t.Errorf("sent inside the call: %+v", out)
		}
		if rows := b.rows(t); rows["b"] != "hello" || rows["c"] != "hello" || rows["caller"] != "hello back" {
			t.Errorf("rows %v", rows)
		}
	})
}

// N-16, N-27: who watches the outgoing feed sees a step at its commit, while the turn still runs, and nothing twice.
func TestStepsAreWatched(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		seen := make(chan struct{})
		k := kind(func(turn *neuron.Turn, n note) error {
			if err := neuron.Send(turn, id("x"), sentType, n); err != nil {
				return err
			}
			if _, err := call.Do(turn, echo, id("b"), n); err != nil {
				return err
			}
			<-seen
			return nil
		})
		call.Serve(k, echo, func(_ *neuron.Turn, n note) (note, error) { return n, nil })
		w := start(t, b, k)
		watcher := w.Watch(id("a"), neuron.Out, feed.Cursor{})
		defer watcher.Close()
		end := make(chan error, 1)
		go func() { end <- w.Deliver(t.Context(), fresh(t, id("a"), "x")) }()
		for seq, alias := range []string{call.RequestedAlias, sentType.Alias(), call.CompletedAlias} {
			e, err := watcher.Next(t.Context())
			if err != nil || e.Item.Seq != uint64(seq)+1 || e.Item.Value.Alias != alias {
				t.Fatalf("%+v, %v, want %d %s", e, err, seq+1, alias)
			}
			if seq == 0 {
				close(seen)
			}
		}
		if err := <-end; err != nil {
			t.Error(err)
		}
		w.wantClean()
	})
}

// N-27: a handler that runs again asks under the same id and is answered from what is stored: the method runs once.
func TestRetriedCallerIsAnsweredFromTheRow(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		var runs counter
		k := kind(func(turn *neuron.Turn, n note) error {
			got, err := call.Do(turn, echo, id("b"), n)
			if err != nil {
				return err
			}
			if runs.add("caller") < 5 {
				return errBroken
			}
			turn.Write(put{"got", got.Text})
			return nil
		})
		call.Serve(k, echo, func(turn *neuron.Turn, n note) (note, error) {
			runs.add("method")
			turn.Write(put{"effect", n.Text})
			return note{Text: "answer"}, nil
		})
		w := start(t, b, k)
		if err := w.Accept(t.Context(), fresh(t, id("a"), "x")); err != nil {
			t.Fatal(err)
		}
		w.wantClean()
		w.wantFacts(id("a"), "requested", "completed")
		if runs.of("caller") != 5 || runs.of("method") != 1 || b.rows(t)["got"] != "answer" {
			t.Errorf("%v, %v", runs.n, b.rows(t))
		}
	})
}

// N-27: a method that fails keeps nothing; a caller that runs again asks again under the same id, and there is one end.
func TestFailedMethodIsAskedAgain(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		var runs counter
		k := kind(func(turn *neuron.Turn, n note) error {
			_, err := call.Do(turn, echo, id("b"), n)
			var failed *call.FailedError
			if n.Text == "forgiving" {
				if !errors.As(err, &failed) || failed.Code != neuron.CallFailed || !errors.Is(err, call.ErrFailed) {
					t.Errorf("the call ended with %v", err)
				}
				return nil
			}
			return err
		})
		call.Serve(k, echo, func(turn *neuron.Turn, n note) (note, error) {
			turn.Write(put{n.Text, ""})
			if err := neuron.Send(turn, id("never"), sentType, note{}); err != nil {
				return note{}, err
			}
			switch runs.add(n.Text) {
			case 1:
				panic("a method panics")
			case 2, 3:
				return note{}, errBroken
			}
			return note{}, nil
		})
		w := start(t, b, k)
		if err := w.Accept(t.Context(), fresh(t, id("a"), "stubborn")); err != nil {
			t.Fatal(err)
		}
		w.quiet()
		facts := w.wantFacts(id("a"), "requested", "completed")
		in := w.entries(id("b"), neuron.In)
		if len(in) != 4 || in[0].Settled != neuron.CallFailed || in[3].Settled != "" || runs.of("stubborn") != 4 {
			t.Errorf("the target accepted %+v", in)
		}
		for _, e := range in {
			if e.Request.ID != facts[0].Request {
				t.Errorf("asked as %s, want %s", e.Request.ID, facts[0].Request)
			}
		}
		if err := w.run(id("f"), "forgiving"); err != nil {
			t.Error(err)
		}
		w.wantClean()
		w.wantFacts(id("f"), "requested", "failed(failed)")
		if out := w.entries(id("b"), neuron.Out); len(out) != 1 { // of the one run that was kept
			t.Errorf("the target sent %+v", out)
		}
		if _, ok := b.rows(t)["forgiving"]; ok {
			t.Error("a failed method left a row")
		}
	})
}

// N-27, N-44: a refusal of the method, of the runtime, or an answer that nobody can give is rejected with its code; the end
// is recorded also where the caller's own delivery is settled by it.
func TestRejected(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		k := kind(func(turn *neuron.Turn, n note) error {
			_, err := call.Do(turn, echo, neuron.ID{Owner: "me", Kind: n.Text, Key: "b"}, note{Text: strings.Repeat("x", n.N)})
			if !errors.Is(err, call.ErrRejected) {
				t.Errorf("%s: %v", n.Text, err)
			}
			turn.Write(put{turn.Self().Key, ""})
			if turn.Self().Key == "passes" {
				return err
			}
			return nil
		})
		refuses := neuron.NewKind("refuses")
		call.Serve(refuses, echo, func(turn *neuron.Turn, n note) (note, error) {
			turn.Write(put{"effect", ""})
			return note{}, neuron.SettleAs("no_such_thing", errBroken)
		})
		talks := neuron.NewKind("talks")
		call.Serve(talks, echo, func(*neuron.Turn, note) (note, error) { return note{Text: strings.Repeat("x", 2<<20)}, nil })
		w := start(t, b, k, refuses, talks, neuron.NewKind("mute"))
		for kind, code := range map[string]neuron.Code{"refuses": "no_such_thing", "mute": neuron.NoHandler, "talks": call.TooLarge} {
			if err := w.run(id(kind), kind); err != nil {
				t.Error(err)
			}
			w.wantFacts(id(kind), "requested", "rejected("+string(code)+")")
		}
		var refusal *neuron.Refusal
		if err := w.run(id("passes"), "refuses"); !errors.As(err, &refusal) || refusal.Code != "no_such_thing" {
			t.Errorf("%v", err)
		}
		w.wantFacts(id("passes"), "requested", "rejected(no_such_thing)")
		w.wantClean()
		rows := b.rows(t)
		if _, ok := rows["effect"]; ok || len(rows) != 3 {
			t.Errorf("rows %v", rows)
		}
		// Nothing but the facts of calls: the ends of the deliveries are told by them.
		if out := w.entries(id("mute"), neuron.Out); len(out) != 2 {
			t.Errorf("told %+v", out)
		}
	})
}

// N-19, N-27: calls nest as deep as deliveries go; the next one is refused where it is made.
func TestNestedCalls(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		nest := func(turn *neuron.Turn, n note) (note, error) {
			turn.Write(put{fmt.Sprint(n.Text, n.N), ""})
			if n.N == 0 {
				return note{N: turn.Delivery().Depth}, nil
			}
			return call.Do(turn, echo, id(fmt.Sprint(n.Text, n.N)), note{Text: n.Text, N: n.N - 1})
		}
		k := kind(func(turn *neuron.Turn, n note) error {
			depth := map[string]int{"deep": 16, "deeper": 17}[n.Text]
			got, err := nest(turn, note{Text: n.Text, N: depth})
			if err == nil && got.N != depth {
				t.Errorf("%s comes to depth %d", n.Text, got.N)
			}
			return err
		})
		call.Serve(k, echo, nest)
		w := start(t, b, k)
		if err := w.run(id("a"), "deep"); err != nil {
			t.Error(err)
		}
		if n := len(b.rows(t)); n != 17 {
			t.Errorf("%d neurons took part, want 17", n)
		}
		var refusal *neuron.Refusal
		if err := w.run(id("a"), "deeper"); !errors.As(err, &refusal) || refusal.Code != neuron.TooDeep {
			t.Errorf("%v", err)
		}
		if n := len(b.rows(t)); n != 17 {
			t.Errorf("%d rows, want 17: what was refused keeps nothing", n)
		}
		w.wantClean()
		for i := 2; i <= 16; i++ {
			w.wantFacts(id(fmt.Sprint("deep", i)), "requested", "completed")
		}
	})
}

// N-27: callers that wait take no worker from those whom they wait for, however few workers there are.
func TestManyCallersAtOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		was := runtime.GOMAXPROCS(2) // as many workers
		defer runtime.GOMAXPROCS(was)
		const callers = 200
		k := kind(func(turn *neuron.Turn, n note) error {
			_, err := call.Do(turn, echo, id("target"+n.Text), n)
			return err
		})
		call.Serve(k, echo, func(turn *neuron.Turn, n note) (note, error) {
			turn.Write(put{turn.Self().Key, ""})
			if turn.Delivery().Depth > 1 || n.N == 1 {
				return n, nil
			}
			return call.Do(turn, echo, id("last"+n.Text), n)
		})
		w := start(t, b, k)
		for _, round := range []struct{ callers, plain, rows int }{{callers, 1, callers}, {callers / 2, 0, 2 * callers}} {
			ends := make(chan error, round.callers)
			for i := range round.callers {
				d, err := goType.New(id(fmt.Sprint("a", i)), note{Text: fmt.Sprintf("%d-%d", round.plain, i), N: round.plain}, time.Now())
				if err != nil {
					t.Fatal(err)
				}
				go func() { ends <- w.Deliver(t.Context(), d) }()
			}
			for range round.callers {
				if err := <-ends; err != nil {
					t.Error(err)
				}
			}
			if n := len(b.rows(t)); n != round.rows {
				t.Errorf("%d methods ran, want %d", n, round.rows)
			}
		}
		w.wantClean()
	})
}

// N-27: more waiting handlers than there may be are told so at once, before anything is asked.
func TestTooManyWait(t *testing.T) {
	const most, more = 256, 20
	b := fake()
	gate := make(chan struct{})
	entered := make(chan struct{}, most)
	k := kind(func(turn *neuron.Turn, n note) error {
		if n.Text == "one more" {
			_, err := call.Do(turn, echo, id("b"), n)
			return err
		}
		entered <- struct{}{}
		_, err := call.Do(turn, echo, id("gate"), n)
		return err
	})
	call.Serve(k, echo, func(turn *neuron.Turn, n note) (note, error) {
		<-gate
		return n, nil
	})
	w := start(t, b, k)
	ends := make(chan error, most)
	for i := range most {
		go func() { ends <- w.Deliver(t.Context(), fresh(t, id(fmt.Sprint("a", i)), "")) }()
	}
	for range most {
		<-entered
	}
	for len(pending(t, b)) < most {
		if err := t.Context().Err(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range more {
		if err := w.run(id(fmt.Sprint("more", i)), "one more"); !errors.Is(err, neuron.ErrBusy) {
			t.Errorf("%v", err)
		}
		w.wantFacts(id(fmt.Sprint("more", i)))
	}
	close(gate)
	for range most {
		if err := <-ends; err != nil {
			t.Error(err)
		}
	}
	if err := w.run(id("more0"), "one more"); err != nil {
		t.Error(err)
	}
	w.wantClean()
}

func pending(t testing.TB, b *base) []call.Row {
	t.Helper()
	rows, err := call.Pending(t.Context(), b.store, ident.ID{}, 1000)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}
