package call_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"soma/internal/neuron"
	"soma/internal/neuron/call"
)

// counting serves count: n.N items, three a part, and remembers how far it came.
func counting(k *neuron.Kind, runs *counter) {
	call.ServeStream(k, count, func(t *neuron.Turn, n note, after int) ([]int, int, bool, error) {
		runs.add(fmt.Sprint(n.Text, " part ", after))
		if n.Text == "breaks" && after == 3 {
			return nil, 0, false, errBroken
		}
		if n.Text == "refuses" && after == 3 {
			return nil, 0, false, neuron.SettleAs("enough", errBroken)
		}
		if err := neuron.Send(t, id("inside"), sentType, n); err != nil {
			return nil, 0, false, err
		}
		t.Write(put{fmt.Sprint(n.Text, after), ""})
		var items []int
		for i := after + 1; i <= min(after+3, n.N); i++ {
			items = append(items, i)
		}
		return items, after + len(items), after+len(items) < n.N, nil
	}, func(t *neuron.Turn, n note, after int) error {
		runs.add(fmt.Sprint(n.Text, " disposed at ", after))
		return neuron.Send(t, id("inside"), sentType, n)
	})
}

// N-27, N-28: a stream is one call, from its start over each part to its end; all its deliveries have the same correlation
// and cause; who leaves it early says so and its target disposes of it.
func TestStreams(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		var runs counter
		takes := map[string]int{"all": 100, "some": 4, "none": 0, "breaks": 100, "refuses": 100, "last": 6}
		k := kind(func(turn *neuron.Turn, n note) error {
			it, err := call.Pull(turn, count, id("b"), note{Text: n.Text, N: 7})
			if err != nil {
				return err
			}
			want := 0
			for want < takes[n.Text] {
				item, ok, err := it.Next()
				if err != nil || !ok {
					if n.Text == "breaks" && !errors.Is(err, call.ErrFailed) || n.Text == "refuses" && !errors.Is(err, call.ErrRejected) || n.Text == "all" && err != nil {
						t.Errorf("%s: %v", n.Text, err)
					}
					break
				}
				if want++; item != want {
					t.Errorf("%s: item %d, want %d", n.Text, item, want)
				}
			}
			turn.Write(put{"got " + n.Text, fmt.Sprint(want)})
			if n.Text == "some" {
				it.Close()
				it.Close()
				if _, ok, err := it.Next(); ok || err != nil {
					t.Errorf("a closed stream goes on: %v", err)
				}
			}
			return nil
		})
		counting(k, &runs)
		w := start(t, b, k)
		for text, want := range map[string]struct {
			end, got, disposed string
		}{
			"all":     {"completed", "7", ""},
			"some":    {"abandoned", "4", "some disposed at 6"},
			"last":    {"abandoned", "6", "last disposed at 6"},
			"breaks":  {"failed(failed)", "3", "breaks disposed at 3"},
			"refuses": {"rejected(enough)", "3", ""},
			"none":    {"", "0", ""},
		} {
			d := fresh(t, id(text), text)
			if err := w.Deliver(t.Context(), d); err != nil {
				t.Errorf("%s: %v", text, err)
			}
			w.quiet()
			if want.end == "" {
				w.wantFacts(id(text))
			} else {
				w.wantFacts(id(text), "requested", want.end)
			}
			if got := b.rows(t)["got "+text]; got != want.got {
				t.Errorf("%s: %s items, want %s", text, got, want.got)
			}
			if want.disposed != "" && runs.of(want.disposed) != 1 {
				t.Errorf("%s: %v", text, runs.n)
			}
			parts := map[string]int{"all": 3, "some": 3, "last": 3, "breaks": 3, "refuses": 2}[text] // deliveries, the disposal among them
			seen := 0
			for _, e := range w.entries(id("b"), neuron.In) {
				if e.Correlation != d.ID {
					continue
				}
				if seen++; e.Causation != d.ID || e.Caller != id(text) || e.Payload != nil {
					t.Errorf("%s: accepted %+v", text, e)
				}
			}
			if seen != parts {
				t.Errorf("%s: %d deliveries, want %d", text, seen, parts)
			}
		}
		for _, e := range w.entries(id("b"), neuron.Out) {
			if e.Correlation == e.Causation || e.Causation.IsZero() {
				t.Errorf("sent inside: %+v", e)
			}
		}
		w.wantClean()
	})
}

// N-27: a handler that runs again gets the same parts again, of which none runs twice, and one that ends without Close has
// left its stream.
func TestRetriedStream(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		var runs counter
		k := kind(func(turn *neuron.Turn, n note) error {
			it, err := call.Pull(turn, count, id("b"), note{Text: n.Text, N: 8})
			if err != nil {
				return err
			}
			for want := 1; ; want++ {
				item, ok, err := it.Next()
				if err != nil {
					return err
				}
				if !ok {
					break
				}
				if item != want {
					t.Errorf("item %d, want %d", item, want)
				}
				if item == 2 && runs.add("early") < 3 || item == 5 && runs.add("middle") < 3 || item == 8 && runs.add("late") < 3 {
					return errBroken
				}
				if n.Text == "settles" && item == 5 {
					return neuron.Settle(errBroken)
				}
			}
			return nil
		})
		counting(k, &runs)
		w := start(t, b, k)
		for _, text := range []string{"goes", "settles"} {
			if err := w.Accept(t.Context(), fresh(t, id(text), text)); err != nil {
				t.Fatal(err)
			}
		}
		w.wantClean()
		w.wantFacts(id("goes"), "requested", "completed")
		w.wantFacts(id("settles"), "requested", "abandoned")
		for _, part := range []string{"goes part 0", "goes part 3", "goes part 6", "settles part 0", "settles part 3", "settles disposed at 6"} {
			if runs.of(part) != 1 {
				t.Errorf("%s ran %d times: %v", part, runs.of(part), runs.n)
			}
		}
	})
}

// N-27: what a caller left open without an end, because nobody runs it again, is ended as failed(unknown) after its deadline;
// the target of a stream is told.
func TestLostCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fake()
		var runs counter
		k := kind(func(turn *neuron.Turn, n note) error {
			switch {
			case n.Text == "stream":
				it, err := call.Pull(turn, count, id("b"), note{Text: n.Text, N: 8})
				if err != nil {
					return err
				}
				if _, _, err := it.Next(); err != nil {
					return err
				}
				return errBroken // and whoever delivered it does not repeat it
			case n.Text == "forgets" && runs.add("forgets") > 1:
				return nil // runs again and asks no more
			}
			if _, err := call.Do(turn, echo, id("b"), n); err != nil {
				return err
			}
			return errBroken
		})
		call.Serve(k, echo, func(turn *neuron.Turn, n note) (note, error) { runs.add("method"); return n, nil })
		counting(k, &runs)
		w := start(t, b, k)
		streamed, once := fresh(t, id("stream"), "stream"), fresh(t, id("once"), "once")
		for _, d := range []neuron.Delivery{streamed, once} {
			if err := w.Deliver(t.Context(), d); !errors.Is(err, errBroken) {
				t.Errorf("%v", err)
			}
		}
		if err := w.Accept(t.Context(), fresh(t, id("forgets"), "forgets")); err != nil {
			t.Fatal(err)
		}
		w.quiet()
		for _, text := range []string{"stream", "once", "forgets"} {
			w.wantFacts(id(text), "requested")
		}
		pass(call.DefaultDeadline - 2*time.Second)
		w.wantFacts(id("once"), "requested")
		pass(20 * time.Second)
		for _, text := range []string{"stream", "once", "forgets"} {
			w.wantFacts(id(text), "requested", "failed(unknown)")
		}
		w.wantClean()
		if runs.of("stream disposed at 3") != 1 || runs.of("method") != 2 {
			t.Errorf("%v", runs.n)
		}
		for _, e := range w.entries(id("b"), neuron.In) { // the disposal belongs to the stream, whoever ended it
			if e.Alias == count.Alias() && (e.Correlation != streamed.ID || e.Causation != streamed.ID) {
				t.Errorf("accepted %+v", e)
			}
		}
		if in := w.entries(id("once"), neuron.In); len(in) != 1 || in[0].Alias != call.LostAlias || in[0].Correlation != once.ID {
			t.Errorf("accepted %+v", in)
		}
		// Who repeats the delivery after all makes its handler ask anew.
		if err := w.Deliver(t.Context(), once); !errors.Is(err, errBroken) {
			t.Errorf("%v", err)
		}
		w.wantFacts(id("once"), "requested", "failed(unknown)", "requested")
		pass(2 * time.Minute)
		facts := w.wantFacts(id("once"), "requested", "failed(unknown)", "requested", "failed(unknown)")
		for _, f := range facts {
			if f.Request != facts[0].Request || f.Correlation != once.ID || f.Causation != once.ID {
				t.Errorf("%+v", f)
			}
		}
		w.wantClean()
	})
}

// N-27: a delivery that is given up after its handler has called leaves a call that is ended as lost.
func TestGivenUpCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fake()
		k := kind(func(turn *neuron.Turn, n note) error {
			if _, err := call.Do(turn, echo, id("b"), n); err != nil {
				return err
			}
			return errBroken
		})
		call.Serve(k, echo, func(_ *neuron.Turn, n note) (note, error) { return n, nil })
		limits := quick()
		limits.Attempts = 3
		w := startUntil(t, b, 0, limits, k)
		if err := w.Accept(t.Context(), fresh(t, id("a"), "x")); err != nil {
			t.Fatal(err)
		}
		w.quiet()
		w.wantFacts(id("a"), "requested")
		pass(call.DefaultDeadline + 20*time.Second)
		w.quiet()
		w.wantFacts(id("a"), "requested", "failed(unknown)")
		if len(pending(t, b)) != 0 {
			t.Error("the call is left")
		}
	})
}

// N-27: a call whose caller will run again is not ended by others, however long that takes.
func TestWaitingRetryKeepsItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fake()
		var runs counter
		k := kind(func(turn *neuron.Turn, n note) error {
			if _, err := call.Do(turn, echo, id("b"), n); err != nil {
				return err
			}
			if runs.add("caller") == 1 {
				return errBroken
			}
			return nil
		})
		call.Serve(k, echo, func(turn *neuron.Turn, n note) (note, error) { runs.add("method"); return n, nil })
		w := startUntil(t, b, 0, neuron.Limits{BackoffMin: 10 * time.Minute, BackoffMax: 10 * time.Minute}, k)
		if err := w.Accept(t.Context(), fresh(t, id("a"), "x")); err != nil {
			t.Fatal(err)
		}
		pass(4 * time.Minute)
		w.wantFacts(id("a"), "requested")
		pass(7 * time.Minute)
		w.wantClean()
		w.wantFacts(id("a"), "requested", "completed")
		if runs.of("method") != 1 || runs.of("caller") != 2 {
			t.Errorf("%v", runs.n)
		}
	})
}

// N-27: the disposal of a stream is tried until it succeeds, also when its target is busy for longer than a deadline.
func TestDisposalIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fake()
		var runs counter
		leave, asked := make(chan struct{}), make(chan struct{})
		k := kind(func(turn *neuron.Turn, n note) error {
			if n.Text == "occupy" {
				<-leave
				return nil
			}
			it, err := call.Pull(turn, count, id("b"), n)
			if err != nil {
				return err
			}
			if _, _, err := it.Next(); err != nil {
				return err
			}
			close(asked)
			pass(time.Second) // the target gets something else to do
			return nil
		})
		call.ServeStream(k, count, func(_ *neuron.Turn, _ note, after int) ([]int, int, bool, error) {
			return []int{1}, after + 1, true, nil
		}, func(turn *neuron.Turn, _ note, after int) error {
			if runs.add("disposed") < 3 {
				return errBroken
			}
			turn.Write(put{"disposed", fmt.Sprint(after)})
			return nil
		})
		w := start(t, b, k)
		streamed, occupied := make(chan error, 1), make(chan error, 1)
		go func() { streamed <- w.run(id("a"), "x") }()
		<-asked
		go func() { occupied <- w.run(id("b"), "occupy") }()
		if err := <-streamed; err != nil {
			t.Error(err)
		}
		w.wantFacts(id("a"), "requested", "abandoned")
		pass(5 * time.Minute)
		if rows := pending(t, b); len(rows) != 1 || rows[0].State != call.Left {
			t.Errorf("rows %+v", rows)
		}
		close(leave)
		if err := <-occupied; err != nil {
			t.Error(err)
		}
		w.wantClean()
		if runs.of("disposed") != 3 || b.rows(t)["disposed"] != "1" {
			t.Errorf("%v, %v", runs.n, b.rows(t))
		}
	})
}
