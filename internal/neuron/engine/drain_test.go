package engine_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/engine"
)

// sender is a kind whose neurons send what a note names: "n mails" to the sink.
func sender(k *neuron.Kind, send func(*neuron.Turn, note) error) { neuron.Handle(k, noteType, send) }

// N-17: a failing head delays its lane only: the signals of the same sender and another sender's mail pass it; each lane
// keeps its order.
func TestLanes(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		var seen log
		var mu sync.Mutex
		broken := true
		k := neuron.NewKind("test")
		sender(k, func(turn *neuron.Turn, n note) error {
			for i := range 3 {
				if err := neuron.Send(turn, id("sink"), otherType, note{fmt.Sprint(turn.Self().Key, " mail ", i), i}); err != nil {
					return err
				}
			}
			return neuron.Send(turn, id("sink"), otherType, note{Text: turn.Self().Key + " signal"}, neuron.OnLane(neuron.Signal))
		})
		neuron.Handle(k, otherType, func(turn *neuron.Turn, n note) error {
			mu.Lock()
			defer mu.Unlock()
			if n.Text == "a mail 0" && broken {
				return errBroken
			}
			seen.add("%s", n.Text)
			return nil
		})
		e := start(t, b, engine.Options{Kinds: []*neuron.Kind{k}})
		deliver(t, e, fresh(t, id("a"), ""))
		deliver(t, e, fresh(t, id("b"), ""))
		waitFor(t, e, func(engine.Stats) bool { return len(seen.all()) == 5 })
		if got := seen.all(); slices.ContainsFunc(got, func(s string) bool { return s == "a mail 1" || s == "a mail 2" }) {
			t.Errorf("overtaken: %v", got)
		}
		mu.Lock()
		broken = false
		mu.Unlock()
		quiet(t, e)
		got := seen.all()
		var a, bs []string
		for _, s := range got {
			switch s[:2] {
			case "a ":
				a = append(a, s)
			case "b ":
				bs = append(bs, s)
			}
		}
		if !slices.Equal(a, []string{"a signal", "a mail 0", "a mail 1", "a mail 2"}) {
			t.Errorf("lane of a: %v", a)
		}
		mails := slices.DeleteFunc(bs, func(s string) bool { return s == "b signal" })
		if !slices.Equal(mails, []string{"b mail 0", "b mail 1", "b mail 2"}) {
			t.Errorf("lane of b: %v", got)
		}
	})
}

// N-17: a signal overtakes mail that waits in the same mailbox.
func TestSignalsOvertakeMail(t *testing.T) {
	b := fake()
	var seen log
	entered, leave := make(chan struct{}), make(chan struct{})
	k := neuron.NewKind("test")
	neuron.Handle(k, noteType, func(_ *neuron.Turn, n note) error {
		if n.Text == "first" {
			close(entered)
			<-leave
		}
		seen.add("%s", n.Text)
		return nil
	})
	e := start(t, b, engine.Options{Kinds: []*neuron.Kind{k}})
	var wg sync.WaitGroup
	send := func(text string, lane neuron.Lane) {
		d := fresh(t, id("a"), text)
		d.Lane = lane
		wg.Go(func() {
			if err := e.Deliver(t.Context(), d); err != nil {
				t.Error(err)
			}
		})
	}
	send("first", neuron.Mail)
	<-entered
	send("mail", neuron.Mail)
	waitFor(t, e, func(s engine.Stats) bool { return s.Waiting == 1 })
	send("signal", neuron.Signal)
	waitFor(t, e, func(s engine.Stats) bool { return s.Waiting == 2 })
	close(leave)
	wg.Wait()
	if got := seen.all(); !slices.Equal(got, []string{"first", "signal", "mail"}) {
		t.Errorf("order %v", got)
	}
}

// failing returns a world in which a's mail to the sink always fails, and what tells the times of its attempts.
func failing(t *testing.T, b *base, l neuron.Limits, now func() time.Time) (*engine.Engine, func() []time.Time) {
	var mu sync.Mutex
	var tries []time.Time
	k := neuron.NewKind("test")
	sender(k, func(turn *neuron.Turn, n note) error { return neuron.Send(turn, id("sink"), otherType, n) })
	neuron.Handle(k, otherType, func(*neuron.Turn, note) error {
		mu.Lock()
		defer mu.Unlock()
		tries = append(tries, time.Now())
		return errBroken
	})
	return start(t, b, engine.Options{Kinds: []*neuron.Kind{k}, Limits: l, Now: now}), func() []time.Time {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(tries)
	}
}

func wantGivenUp(t *testing.T, e *engine.Engine, code neuron.Code, attempts int) {
	t.Helper()
	letters := dead(t, e)
	if len(letters) != 1 || letters[0].Code != code || letters[0].Attempts != attempts || letters[0].Error != "broken" {
		t.Fatalf("dead letters %+v, want %s after %d", letters, code, attempts)
	}
	out := page(t, e, id("a"), neuron.Out)
	if out.Last != 2 || out.Entries[1].Ended == nil || out.Entries[1].Ended.Code != code || out.Entries[1].Ended.ID != letters[0].ID {
		t.Fatalf("the sender's feed: %+v", out.Entries)
	}
	if in := page(t, e, id("sink"), neuron.In); in.Last != 1 || in.Entries[0].Settled != code {
		t.Fatalf("the target's feed: %+v", in.Entries)
	}
	if rows, err := e.DeadLetters(t.Context(), letters[0].ID, 1); err != nil || len(rows) != 0 {
		t.Fatalf("%v, %v", rows, err)
	}
}

// N-18: the bound on attempts alone.
func TestAttemptsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, tries := failing(t, fake(), neuron.Limits{BackoffMin: time.Millisecond, BackoffMax: time.Millisecond}, nil)
		deliver(t, e, fresh(t, id("a"), ""))
		quiet(t, e)
		if len(tries()) != 1000 {
			t.Errorf("%d attempts", len(tries()))
		}
		wantGivenUp(t, e, neuron.AttemptsSpent, 1000)
	})
}

// N-08, N-18: the bound on time alone, with a backoff that grows to its limit and has jitter.
func TestHorizon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		e, tries := failing(t, fake(), neuron.DefaultLimits(), nil)
		deliver(t, e, fresh(t, id("a"), ""))
		for done := false; !done; {
			<-time.After(time.Minute)
			done = len(dead(t, e)) > 0
		}
		quiet(t, e)
		if d := tries()[len(tries())-1].Sub(began); d < 30*time.Minute || d > 31*time.Minute {
			t.Errorf("given up after %v", d)
		}
		wantGivenUp(t, e, neuron.HorizonPassed, len(tries()))
		var waits []time.Duration
		for i, at := range tries()[1:] {
			waits = append(waits, at.Sub(tries()[i]))
		}
		for i, w := range waits {
			full := min(50*time.Millisecond<<min(i, 20), time.Minute)
			if w < full/2 || w > full+time.Millisecond {
				t.Errorf("wait %d is %v, want %v to %v", i, w, full/2, full)
			}
		}
		if waits[len(waits)-1] == waits[len(waits)-2] {
			t.Error("no jitter")
		}
	})
}

// N-18, N-19: a jump of the wall clock by two hours with work pending takes nothing of the horizon.
func TestClockJump(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var offset time.Duration
		now := func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return time.Now().Add(offset)
		}
		e, tries := failing(t, fake(), neuron.DefaultLimits(), now)
		deliver(t, e, fresh(t, id("a"), ""))
		<-time.After(10 * time.Minute)
		mu.Lock()
		offset = 2 * time.Hour
		mu.Unlock()
		<-time.After(10 * time.Minute)
		mu.Lock()
		offset = -2 * time.Hour
		mu.Unlock()
		n := len(tries())
		<-time.After(5 * time.Minute)
		if len(dead(t, e)) != 0 || len(tries()) == n {
			t.Errorf("dead %v, %d tries after the jumps", dead(t, e), len(tries())-n)
		}
	})
}

// N-18: one attempt ends after Limits.AttemptTime.
func TestAttemptTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := neuron.NewKind("test")
		neuron.Handle(k, noteType, func(turn *neuron.Turn, _ note) error {
			<-turn.Context().Done()
			return turn.Context().Err()
		})
		e := start(t, fake(), engine.Options{Kinds: []*neuron.Kind{k}})
		began := time.Now()
		if err := e.Deliver(t.Context(), fresh(t, id("a"), "")); err == nil || time.Since(began) != 45*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// N-45: attempts, first try, time tried and due time go on after a restart; the time in between does not count.
func TestRetriesSurviveARestart(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		l := neuron.Limits{BackoffMin: time.Millisecond, BackoffMax: 2 * time.Millisecond, Attempts: 60}
		down := time.Duration(0)
		now := func() time.Time { return time.Now().Add(down) }
		e, tries := failing(t, b, l, now)
		deliver(t, e, fresh(t, id("a"), ""))
		waitFor(t, e, func(engine.Stats) bool { return attempts(t, b) > 10 })
		stop(t, e)
		before := len(tries())
		rows, err := b.store.Outbox(t.Context(), neuron.AllPlaces(), ident.ID{}, 10)
		if err != nil || len(rows) != 1 || rows[0].Attempts < before || rows[0].FirstTry.IsZero() || rows[0].Tried <= 0 {
			t.Fatalf("rows %+v after %d attempts, %v", rows, before, err)
		}
		first, tried := rows[0].FirstTry, rows[0].Tried
		b.reopen(t)
		down = 24 * time.Hour
		e, again := failing(t, b, l, now)
		waitFor(t, e, func(engine.Stats) bool { return attempts(t, b) > rows[0].Attempts+2 || len(dead(t, e)) > 0 })
		rows, err = b.store.Outbox(t.Context(), neuron.AllPlaces(), ident.ID{}, 10)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			if r.Target == id("sink") && (!r.FirstTry.Equal(first) || r.Tried < tried || r.Tried > time.Hour) {
				t.Errorf("first tried %v for %v, want %v and a little more than %v", r.FirstTry, r.Tried, first, tried)
			}
		}
		quiet(t, e)
		if n := before + len(again()); n != 60 {
			t.Errorf("%d attempts before and %d after the restart, want 60", before, len(again()))
		}
		wantGivenUp(t, e, neuron.AttemptsSpent, 60)
	})
}

func attempts(t *testing.T, b *base) int {
	rows, err := b.store.Outbox(t.Context(), neuron.AllPlaces(), ident.ID{}, 10)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, r := range rows {
		n = max(n, r.Attempts)
	}
	return n
}

// N-45: the count of an attempt is in the store before its handler runs.
func TestAttemptsCountBeforeTheyRun(t *testing.T) {
	b := fake()
	k := neuron.NewKind("test")
	sender(k, func(turn *neuron.Turn, n note) error { return neuron.Send(turn, id("sink"), otherType, n) })
	tries := 0
	neuron.Handle(k, otherType, func(*neuron.Turn, note) error {
		if tries++; attempts(t, b) != tries {
			t.Errorf("attempt %d runs, the store says %d", tries, attempts(t, b))
		}
		if tries < 5 {
			return errBroken
		}
		return nil
	})
	e := start(t, b, engine.Options{Kinds: []*neuron.Kind{k}})
	deliver(t, e, fresh(t, id("a"), ""))
	quiet(t, e)
	if tries != 5 {
		t.Errorf("%d attempts", tries)
	}
	if in := page(t, e, id("sink"), neuron.In); len(in.Entries) != 1 || in.Entries[0].Attempts != 5 || in.Entries[0].Handled.IsZero() {
		t.Errorf("the journal says %+v", in)
	}
}

// N-11: an alarm fires after its time, over a restart too, and can be cancelled by a later turn.
func TestAlarms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fake()
		var fired []time.Time
		var cancel ident.ID
		k := neuron.NewKind("test")
		neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error {
			if n.Text == "cancel" {
				turn.CancelAlarm(cancel)
				return nil
			}
			var err error
			if cancel, err = neuron.After(turn, 3*time.Hour, otherType, note{Text: "cancelled"}); err != nil {
				return err
			}
			gone, err := neuron.After(turn, time.Hour, otherType, note{Text: "cancelled at once"})
			if err != nil {
				return err
			}
			turn.CancelAlarm(gone)
			for _, d := range []time.Duration{2 * time.Hour, time.Hour} {
				if _, err := neuron.After(turn, d, otherType, note{Text: d.String()}); err != nil {
					return err
				}
			}
			return nil
		})
		neuron.Handle(k, otherType, func(turn *neuron.Turn, n note) error {
			if turn.Delivery().Depth != 0 || n.Text != fmt.Sprint(time.Duration(len(fired)+1)*time.Hour) {
				t.Errorf("alarm %+v", turn.Delivery())
			}
			fired = append(fired, time.Now())
			return nil
		})
		began := time.Now()
		e := start(t, b, engine.Options{Kinds: []*neuron.Kind{k}})
		deliver(t, e, fresh(t, id("a"), ""))
		quiet(t, e)
		if s := e.Stats(); s.Dormant != 3 || s.Outbox != 3 {
			t.Fatalf("%+v", s)
		}
		<-time.After(90 * time.Minute)
		if len(fired) != 1 || fired[0].Sub(began) != time.Hour {
			t.Fatalf("fired %v", fired)
		}
		stop(t, e)
		e = start(t, b, engine.Options{Kinds: []*neuron.Kind{k}})
		<-time.After(time.Minute)
		deliver(t, e, fresh(t, id("a"), "cancel"))
		<-time.After(4 * time.Hour)
		if len(fired) != 2 || fired[1].Sub(began) != 2*time.Hour {
			t.Fatalf("fired %v", fired)
		}
		if s := e.Stats(); s.Dormant != 0 || s.Outbox != 0 || s.Removals != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// N-19: 16 hops pass, the 17th is a settled error.
func TestDepth(t *testing.T) {
	b := fake()
	k := neuron.NewKind("test")
	deepest := 0
	neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error {
		deepest = turn.Delivery().Depth
		return neuron.Send(turn, id(fmt.Sprint(deepest+1)), noteType, n)
	})
	e := start(t, b, engine.Options{Kinds: []*neuron.Kind{k}})
	deliver(t, e, fresh(t, id("0"), ""))
	quiet(t, e)
	if deepest != 16 {
		t.Errorf("deepest %d", deepest)
	}
	if in := page(t, e, id("16"), neuron.In); in.Last != 1 || in.Entries[0].Settled != neuron.TooDeep {
		t.Errorf("the 16th: %+v", in)
	}
	if out := page(t, e, id("15"), neuron.Out); out.Last != 2 || out.Entries[1].Ended.Code != neuron.TooDeep {
		t.Errorf("the 15th: %+v", out)
	}
}

// N-19: a hundred rounds of mail that starts new work each time go through.
func TestHundredRounds(t *testing.T) {
	b := fake()
	k := neuron.NewKind("test")
	rounds := 0
	neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error {
		if n.N == 200 {
			return nil
		}
		rounds = n.N + 1
		to := id("parent")
		if turn.Self() == to {
			to = id("child")
		}
		return neuron.Send(turn, to, noteType, note{N: n.N + 1}, neuron.AtDepth(0))
	})
	e := start(t, b, engine.Options{Kinds: []*neuron.Kind{k}})
	deliver(t, e, fresh(t, id("parent"), ""))
	quiet(t, e)
	if rounds != 200 || len(dead(t, e)) != 0 {
		t.Errorf("%d messages, dead %v", rounds, dead(t, e))
	}
}

// N-20: a send with an id of its own that waits already, or was delivered already, is one delivery.
func TestEqualSends(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		space := ident.New(time.Now())
		var seen log
		k := neuron.NewKind("test")
		neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error {
			return neuron.Send(turn, id("sink"), otherType, n, neuron.WithID(ident.Derive(space, "x")))
		})
		hold := true
		var mu sync.Mutex
		neuron.Handle(k, otherType, func(_ *neuron.Turn, n note) error {
			mu.Lock()
			defer mu.Unlock()
			if hold {
				return errBroken
			}
			seen.add("%s", n.Text)
			return nil
		})
		e := start(t, b, engine.Options{Kinds: []*neuron.Kind{k}})
		deliver(t, e, fresh(t, id("a"), "1"))
		deliver(t, e, fresh(t, id("b"), "2"))
		mu.Lock()
		hold = false
		mu.Unlock()
		quiet(t, e)
		deliver(t, e, fresh(t, id("a"), "3"))
		quiet(t, e)
		if got := seen.all(); !slices.Equal(got, []string{"1"}) {
			t.Errorf("handled %v", got)
		}
	})
}

// A full mailbox refuses what comes from outside.
func TestMailboxIsBounded(t *testing.T) {
	b := fake()
	k := neuron.NewKind("test")
	entered, leave := make(chan struct{}, 10), make(chan struct{})
	neuron.Handle(k, noteType, func(*neuron.Turn, note) error { entered <- struct{}{}; <-leave; return nil })
	e := start(t, b, engine.Options{Kinds: []*neuron.Kind{k}, Limits: neuron.Limits{Mailbox: 2}})
	var wg sync.WaitGroup
	for i := range 3 {
		d := fresh(t, id("a"), "")
		wg.Go(func() {
			if err := e.Deliver(t.Context(), d); err != nil {
				t.Error(err)
			}
		})
		if i == 0 {
			<-entered
		}
	}
	waitFor(t, e, func(s engine.Stats) bool { return s.Waiting == 2 })
	if err := e.Deliver(t.Context(), fresh(t, id("a"), "")); !errors.Is(err, neuron.ErrBusy) {
		t.Errorf("the fourth: %v", err)
	}
	close(leave)
	wg.Wait()
}
