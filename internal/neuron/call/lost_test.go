package call_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"soma/internal/neuron"
	"soma/internal/neuron/call"
	"soma/internal/neuron/engine"
)

// N-28: time with the daemon down does not end the disposal of a stream.
func TestDisposalAfterALongStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fake()
		var runs counter
		var broken atomic.Bool
		broken.Store(true)
		k := kind(func(turn *neuron.Turn, n note) error {
			it, err := call.Pull(turn, count, id("b"), n)
			if err == nil {
				_, _, err = it.Next()
			}
			return err
		})
		call.ServeStream(k, count, func(_ *neuron.Turn, _ note, after int) ([]int, int, bool, error) {
			return []int{1}, after + 1, true, nil
		}, func(*neuron.Turn, note, int) error {
			if broken.Load() || runs.add("after the stop") < 3 {
				return errBroken
			}
			runs.add("disposed")
			return nil
		})
		w := start(t, b, k)
		if err := w.run(id("a"), "x"); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		w.stop()
		if rows := pending(t, b); len(rows) != 1 || rows[0].State != call.Left {
			t.Fatalf("rows %+v", rows)
		}
		pass(2 * time.Hour)
		broken.Store(false)
		w = startUntil(t, b, 0, neuron.Limits{BackoffMin: 20 * time.Second, BackoffMax: 20 * time.Second}, k)
		pass(2 * time.Minute)
		w.wantClean()
		if runs.of("disposed") != 1 {
			t.Errorf("disposed %d times", runs.of("disposed"))
		}
	})
}

// N-27: a call is not ended by others while its caller still runs and will run again, also where no outbox row says so: its
// method runs once.
func TestLongHandlerKeepsItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs counter
		short := call.New[note, note]("test.short", "say", call.Deadline(time.Second))
		k := kind(func(turn *neuron.Turn, n note) error {
			if _, err := call.Do(turn, short, id("b"), n); err != nil {
				return err
			}
			if runs.add("caller") == 1 {
				pass(40 * time.Second)
				return errBroken
			}
			return nil
		})
		call.Serve(k, short, func(_ *neuron.Turn, n note) (note, error) { runs.add("method"); return n, nil })
		w := startTyped(t, fake(), append([]string{short.Alias()}, types...), k)
		if err := w.Accept(t.Context(), fresh(t, id("a"), "x")); err != nil {
			t.Error(err)
		}
		pass(5 * time.Minute)
		w.wantFacts(id("a"), "requested", "completed")
		if runs.of("caller") != 2 || runs.of("method") != 1 {
			t.Errorf("%v", runs.n)
		}
		w.wantClean()
	})
}

// N-27: a lost call is ended also where the clock is set back between the look and the turn that ends it.
func TestLostCallAndAClockThatIsSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var back atomic.Int64
		leave, occupied := make(chan struct{}), make(chan error, 1)
		k := kind(func(turn *neuron.Turn, n note) error {
			if n.Text == "occupy" {
				<-leave
				return nil
			}
			if _, err := call.Do(turn, echo, id("b"), n); err != nil {
				return err
			}
			return errBroken // and nobody repeats it
		})
		call.Serve(k, echo, func(_ *neuron.Turn, n note) (note, error) { return n, nil })
		b := fake()
		e, err := engine.New(engine.Options{
			Store: b.store, Kinds: []*neuron.Kind{k}, Types: types, Limits: quick(),
			Now: func() time.Time { return time.Now().Add(-time.Duration(back.Load())) },
		})
		if err != nil {
			t.Fatal(err)
		}
		w := &world{Engine: e, t: t, b: b}
		w.begin()
		if err := w.run(id("a"), "x"); !errors.Is(err, errBroken) {
			t.Fatal(err)
		}
		pass(call.DefaultDeadline - 10*time.Second)
		go func() { occupied <- w.run(id("a"), "occupy") }()
		pass(30 * time.Second) // the call is found to be lost; its caller is busy
		back.Store(int64(time.Hour))
		close(leave)
		if err := <-occupied; err != nil {
			t.Fatal(err)
		}
		w.quiet()
		w.wantFacts(id("a"), "requested", "failed(unknown)")
		w.wantClean()
	})
}

// A panic of what runs at the end of a handler is an attempt that failed, and the program goes on; what a turn has staged can
// be looked at without changing it.
func TestEndOfAHandler(t *testing.T) {
	var runs counter
	k := kind(func(turn *neuron.Turn, n note) error {
		turn.AtEnd(func() {
			if runs.add("end") == 1 {
				panic("at the end")
			}
			turn.Anyway(neuron.Step{Ops: []neuron.Op{put{n.Text, "anyway"}}})
		})
		for range 2 {
			if got := turn.Result(); len(got.Record.Ops) != 0 || runs.of("end") > 1 {
				t.Errorf("staged before the end: %+v", got)
			}
		}
		return nil
	})
	b := fake()
	w := start(t, b, k)
	if err := w.Accept(t.Context(), fresh(t, id("a"), "x")); err != nil {
		t.Fatal(err)
	}
	w.quiet()
	if runs.of("end") != 2 || b.rows(t)["x"] != "anyway" {
		t.Errorf("%v, %v", runs.n, b.rows(t))
	}
}
