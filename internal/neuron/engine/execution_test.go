package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/engine"
)

// adapter runs executions by functions.
type adapter struct {
	run     func(context.Context, neuron.Execution) (json.RawMessage, error)
	recover func(context.Context, neuron.Execution) (json.RawMessage, bool, error)
}

func (a adapter) Run(ctx context.Context, x neuron.Execution) (json.RawMessage, error) {
	return a.run(ctx, x)
}
func (a adapter) Recover(ctx context.Context, x neuron.Execution) (json.RawMessage, bool, error) {
	return a.recover(ctx, x)
}

// starter is a kind that starts an execution per note, of the policy that the note names, and logs outcomes.
func starter(seen *log) *neuron.Kind {
	k := neuron.NewKind("test")
	neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error {
		turn.Start(neuron.Execution{Kind: "work", Policy: neuron.Policy(n.Text), Then: endType.Alias(), Input: []byte(`{"in":1}`)})
		return nil
	})
	neuron.Handle(k, endType, func(turn *neuron.Turn, end neuron.Ended) error {
		d := turn.Delivery()
		if d.ID != end.ID.WithAttempt(uint16(end.Attempt)) || d.Depth != 0 || d.Caller != turn.Self() || d.Causation.IsZero() {
			return neuron.Settle(fmt.Errorf("outcome came as %+v", d))
		}
		seen.add("%d %s %s %s", end.Attempt, end.Status, end.Payload, end.Error)
		return nil
	})
	return k
}

func executions(t *testing.T, b *base) []neuron.Execution {
	t.Helper()
	xs, err := b.store.Executions(t.Context(), neuron.AllPlaces(), ident.ID{}, 100)
	if err != nil {
		t.Fatal(err)
	}
	return xs
}

// N-10: an execution's row is there before its side effect, and its outcome comes back as a delivery that takes the row away.
func TestExecution(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		var seen log
		work := adapter{run: func(_ context.Context, x neuron.Execution) (json.RawMessage, error) {
			if xs := executions(t, b); len(xs) != 1 || xs[0].ID != x.ID || xs[0].Attempt != 1 || string(xs[0].Input) != `{"in":1}` {
				t.Errorf("rows while it runs: %+v", xs)
			}
			return json.RawMessage(`{"out":2}`), nil
		}}
		e := start(t, b, engine.Options{Kinds: []*neuron.Kind{starter(&seen)}, Adapters: map[string]neuron.Adapter{"work": work}})
		deliver(t, e, fresh(t, id("a"), "once"))
		quiet(t, e)
		if got := seen.all(); !slices.Equal(got, []string{`1 done {"out":2} `}) || len(executions(t, b)) != 0 {
			t.Errorf("outcomes %v, rows %v", got, executions(t, b))
		}
	})
}

func TestExecutionFails(t *testing.T) {
	b := fake()
	for name, c := range map[string]struct {
		run  func(context.Context, neuron.Execution) (json.RawMessage, error)
		want string
	}{
		"error":   {func(context.Context, neuron.Execution) (json.RawMessage, error) { return nil, errBroken }, "1 failed  broken"},
		"panic":   {func(context.Context, neuron.Execution) (json.RawMessage, error) { panic("boom") }, "1 failed  panic: boom"},
		"no json": {func(context.Context, neuron.Execution) (json.RawMessage, error) { return []byte("{"), nil }, "1 failed  the outcome is no JSON"},
		"none":    {nil, `1 failed  no adapter for executions of kind "work"`},
	} {
		var seen log
		adapters := map[string]neuron.Adapter{"work": adapter{run: c.run}}
		if c.run == nil {
			adapters = nil
		}
		e := start(t, b, engine.Options{Kinds: []*neuron.Kind{starter(&seen)}, Adapters: adapters})
		deliver(t, e, fresh(t, id(name), "once"))
		quiet(t, e)
		if got := seen.all(); !slices.Equal(got, []string{c.want}) {
			t.Errorf("%s: outcomes %q, want %q", name, got, c.want)
		}
		stop(t, e)
	}
}

// N-10: cancelling ends the run; the outcome still comes, and so does one past the deadline.
func TestExecutionIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen log
		k := starter(&seen)
		var x neuron.Execution
		neuron.Handle(k, otherType, func(turn *neuron.Turn, n note) error {
			if n.Text == "cancel" {
				turn.CancelExecution(x.ID)
				return nil
			}
			x = turn.Start(neuron.Execution{Kind: "work", Policy: neuron.Once, Then: endType.Alias(), Deadline: time.Hour})
			return nil
		})
		work := adapter{run: func(ctx context.Context, _ neuron.Execution) (json.RawMessage, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}}
		e := start(t, fake(), engine.Options{Kinds: []*neuron.Kind{k}, Adapters: map[string]neuron.Adapter{"work": work}})
		send := func(text string) {
			d := fresh(t, id("a"), text)
			d.Alias = otherType.Alias()
			deliver(t, e, d)
		}
		send("start")
		synctest.Wait()
		send("cancel")
		quiet(t, e)
		send("start")
		<-time.After(59 * time.Minute)
		if len(seen.all()) != 1 {
			t.Errorf("ended early: %v", seen.all())
		}
		<-time.After(2 * time.Minute)
		send("start")
		synctest.Wait()
		if !e.Cancel(x.ID) || e.Cancel(ident.New(time.Now())) {
			t.Error("Cancel does not know what runs")
		}
		quiet(t, e)
		want := []string{"1 failed  execution cancelled", "1 failed  context deadline exceeded", "1 failed  execution cancelled"}
		if got := seen.all(); !slices.Equal(got, want) {
			t.Errorf("outcomes %q", got)
		}
	})
}

// N-10: a newer attempt takes the place of the old one, whose late outcome ends nothing.
func TestLateOutcome(t *testing.T) {
	b := fake()
	k := neuron.NewKind("test")
	var seen log
	var first neuron.Execution
	neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error {
		x := neuron.Execution{Kind: "work", Policy: neuron.Idempotent, Then: endType.Alias()}
		if n.Text == "again" {
			x.ID, x.Attempt = first.ID, 2
		}
		x = turn.Start(x)
		if n.Text != "again" {
			first = x
		}
		return nil
	})
	neuron.Handle(k, endType, func(turn *neuron.Turn, end neuron.Ended) error {
		seen.add("%d %s", end.Attempt, end.Status)
		return nil
	})
	gates := []chan struct{}{nil, make(chan struct{}), make(chan struct{})}
	work := adapter{run: func(_ context.Context, x neuron.Execution) (json.RawMessage, error) {
		<-gates[x.Attempt]
		return nil, nil
	}}
	e := start(t, b, engine.Options{Kinds: []*neuron.Kind{k}, Adapters: map[string]neuron.Adapter{"work": work}})
	deliver(t, e, fresh(t, id("a"), ""))
	deliver(t, e, fresh(t, id("a"), "again"))
	close(gates[1])
	waitFor(t, e, func(engine.Stats) bool { return len(seen.all()) == 1 })
	if xs := executions(t, b); len(xs) != 1 || xs[0].Attempt != 2 {
		t.Errorf("after the late outcome: %+v", xs)
	}
	close(gates[2])
	quiet(t, e)
	if got := seen.all(); !slices.Equal(got, []string{"1 done", "2 done"}) || len(executions(t, b)) != 0 {
		t.Errorf("outcomes %v, rows %v", got, executions(t, b))
	}
}

// N-10, N-33: what a restart does with an execution depends on its policy; a crash counts, a stop does not.
func TestExecutionPolicies(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		slots := filepath.Join(t.TempDir(), "inflight")
		var seen, runs log
		hang := make(chan struct{})
		work := adapter{
			run: func(ctx context.Context, x neuron.Execution) (json.RawMessage, error) {
				runs.add("%s %d/%d", x.Policy, x.Attempt, x.Crashes)
				select {
				case <-ctx.Done():
				case <-hang:
				}
				return nil, nil
			},
			recover: func(ctx context.Context, x neuron.Execution) (json.RawMessage, bool, error) {
				if x.Neuron == id("lost") {
					return nil, false, nil
				}
				return json.RawMessage(`"found"`), true, nil
			},
		}
		o := engine.Options{Kinds: []*neuron.Kind{starter(&seen)}, Adapters: map[string]neuron.Adapter{"work": work}}
		e := live(t, b, o, slots)
		for key, policy := range map[string]neuron.Policy{"i": neuron.Idempotent, "at": neuron.Attach, "lost": neuron.Attach, "o": neuron.Once} {
			deliver(t, e.Engine, fresh(t, id(key), string(policy)))
		}
		waitFor(t, e.Engine, func(engine.Stats) bool { return len(runs.all()) == 4 })
		e.bury(t)
		b.reopen(t)
		e = live(t, b, o, slots)
		waitFor(t, e.Engine, func(s engine.Stats) bool { return s.Executions == 1 && len(runs.all()) == 5 })
		got := seen.all()
		slices.Sort(got)
		want := []string{`1 done "found" `, "1 unknown  a restart hid the outcome", "1 unknown  a restart hid the outcome"}
		if !slices.Equal(got, want) {
			t.Errorf("outcomes %q, want %q", got, want)
		}
		if last := runs.all()[4]; last != "idempotent 2/0" {
			t.Errorf("after a stop: %s", last)
		}
		for crash := 1; crash <= 2; crash++ {
			e.kill(t, b)
			e = live(t, b, o, slots)
			waitFor(t, e.Engine, func(s engine.Stats) bool { return len(runs.all()) == 5+crash })
			if last := runs.all()[4+crash]; last != fmt.Sprintf("idempotent %d/%d", 2+crash, crash) {
				t.Errorf("after crash %d: %s", crash, last)
			}
		}
		e.kill(t, b)
		e = live(t, b, o, slots)
		quiet(t, e.Engine)
		if got := seen.all(); len(got) != 4 || got[3] != "5 failed  crashed too often" || len(executions(t, b)) != 0 {
			t.Errorf("outcomes %q, rows %+v", got, executions(t, b))
		}
		close(hang)
	})
}

// N-10: an adapter that brings the program down when it is asked about an earlier run is not asked for ever.
func TestAskingIsChargedForCrashes(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		slots := filepath.Join(t.TempDir(), "inflight")
		var seen, asked log
		hang := make(chan struct{})
		wait := func(ctx context.Context) {
			select {
			case <-ctx.Done():
			case <-hang:
			}
		}
		work := adapter{
			run: func(ctx context.Context, _ neuron.Execution) (json.RawMessage, error) {
				asked.add("run")
				wait(ctx)
				return nil, nil
			},
			recover: func(ctx context.Context, x neuron.Execution) (json.RawMessage, bool, error) {
				asked.add("%d/%d", x.Attempt, x.Crashes)
				wait(ctx)
				return nil, true, nil
			},
		}
		o := engine.Options{Kinds: []*neuron.Kind{starter(&seen)}, Adapters: map[string]neuron.Adapter{"work": work}}
		e := live(t, b, o, slots)
		deliver(t, e.Engine, fresh(t, id("a"), string(neuron.Attach)))
		for n := 1; n <= 3; n++ {
			waitFor(t, e.Engine, func(engine.Stats) bool { return len(asked.all()) == n })
			e.kill(t, b)
			e = live(t, b, o, slots)
		}
		quiet(t, e.Engine)
		if got := asked.all(); !slices.Equal(got, []string{"run", "1/1", "1/2"}) {
			t.Errorf("asked %q", got)
		}
		if got := seen.all(); !slices.Equal(got, []string{"1 unknown  crashed too often"}) || len(executions(t, b)) != 0 {
			t.Errorf("outcomes %q, rows %+v", got, executions(t, b))
		}
		close(hang)
	})
}

// An outcome that was accepted but not handled when the program ended is not asked for again.
func TestAcceptedOutcomeSurvives(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		var seen, runs log
		broken := true
		k := neuron.NewKind("test")
		neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error {
			turn.Start(neuron.Execution{Kind: "work", Policy: neuron.Idempotent, Then: endType.Alias()})
			return nil
		})
		neuron.Handle(k, endType, func(_ *neuron.Turn, end neuron.Ended) error {
			if broken {
				return errBroken
			}
			seen.add("%d %s", end.Attempt, end.Payload)
			return nil
		})
		large := `"` + strings.Repeat("x", 100_000) + `"`
		work := adapter{run: func(context.Context, neuron.Execution) (json.RawMessage, error) {
			runs.add("run")
			return json.RawMessage(large), nil
		}}
		o := engine.Options{Kinds: []*neuron.Kind{k}, Adapters: map[string]neuron.Adapter{"work": work}}
		e := start(t, b, o)
		deliver(t, e, fresh(t, id("a"), ""))
		waitFor(t, e, func(engine.Stats) bool { return attempts(t, b) > 2 })
		stop(t, e)
		b.reopen(t)
		broken = false
		e = start(t, b, o)
		quiet(t, e)
		if got := seen.all(); !slices.Equal(got, []string{"1 " + large}) || len(runs.all()) != 1 || len(executions(t, b)) != 0 {
			t.Errorf("%d outcomes, %d runs, rows %v", len(got), len(runs.all()), executions(t, b))
		}
	})
}

// N-19: an outcome keeps the depth of the turn that started its execution: two hundred in a row go through.
func TestTwoHundredExecutions(t *testing.T) {
	b := fake()
	k := neuron.NewKind("test")
	n := 0
	begin := func(turn *neuron.Turn) error {
		turn.Start(neuron.Execution{Kind: "work", Policy: neuron.Once, Then: endType.Alias()})
		return nil
	}
	neuron.Handle(k, noteType, func(turn *neuron.Turn, _ note) error { return begin(turn) })
	neuron.Handle(k, endType, func(turn *neuron.Turn, _ neuron.Ended) error {
		if d := turn.Delivery().Depth; d != 3 {
			return neuron.Settle(fmt.Errorf("depth %d", d))
		}
		if n++; n == 200 {
			return nil
		}
		return begin(turn)
	})
	work := adapter{run: func(context.Context, neuron.Execution) (json.RawMessage, error) { return nil, nil }}
	e := start(t, b, engine.Options{Kinds: []*neuron.Kind{k}, Adapters: map[string]neuron.Adapter{"work": work}})
	d := fresh(t, id("a"), "")
	d.Depth = 3
	deliver(t, e, d)
	quiet(t, e)
	if n != 200 {
		t.Errorf("%d outcomes", n)
	}
}
