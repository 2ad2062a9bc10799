package engine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/engine"
)

var zero ident.ID

// once writes a row that must not be there: an effect that happens twice fails its turn for ever.
type once struct{ put }

var errTwice = errors.New("the effect happened twice")

func (once) Guard() error { return errTwice }

// life is one run of a program on a database.
type life struct {
	*engine.Engine
	wire  *killed
	slots string
}

func live(t testing.TB, b *base, o engine.Options, slots string) *life {
	t.Helper()
	return liveUntil(t, b, o, slots, 0)
}

// liveUntil is a life that ends before its n-th commit, 0 for none.
func liveUntil(t testing.TB, b *base, o engine.Options, slots string, n int64) *life {
	t.Helper()
	l := &life{wire: &killed{Store: b.store, at: n}, slots: slots}
	o.Store, o.Inflight = l.wire, slots
	if o.Types == nil {
		o.Types = types
	}
	if o.Limits == (neuron.Limits{}) {
		o.Limits = quick()
	}
	e, err := engine.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.Engine = e
	t.Cleanup(func() { l.bury(t) })
	return l
}

// kill ends a life as SIGKILL would: nothing reaches the database any more, and the mapped file stays as it was. Then the
// goroutines are cleared away and the database is opened anew.
func (l *life) kill(t testing.TB, b *base) { l.killWith(t, b, func() {}) }

// killWith lets stuck handlers go once the life has ended.
func (l *life) killWith(t testing.TB, b *base, release func()) {
	t.Helper()
	l.wire.dead.Store(true)
	var slots []byte
	if l.slots != "" {
		var err error
		if slots, err = os.ReadFile(l.slots); err != nil {
			t.Fatal(err)
		}
	}
	release()
	l.bury(t)
	if slots != nil {
		if err := os.WriteFile(l.slots, slots, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b.reopen(t)
}

func (l *life) bury(t testing.TB) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Second)
	defer cancel()
	if err := l.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// N-45: a delivery whose handler ran at the moment of a crash is charged with it, and only this one; the third crash makes
// a dead letter.
func TestCrashesAreCharged(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		slots := filepath.Join(t.TempDir(), "inflight")
		entered, leave := make(chan struct{}, 1), make(chan struct{}, 1)
		k := neuron.NewKind("test")
		neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error {
			if err := neuron.Send(turn, id("killer"), otherType, n); err != nil {
				return err
			}
			return neuron.Send(turn, id("victim"), otherType, n)
		})
		failing := true
		neuron.Handle(k, otherType, func(turn *neuron.Turn, n note) error {
			if turn.Self() == id("killer") {
				entered <- struct{}{}
				<-leave
				return errBroken
			}
			if failing {
				return errBroken
			}
			return nil
		})
		l := quick()
		l.BackoffMin, l.BackoffMax = time.Hour, time.Hour
		o := engine.Options{Kinds: []*neuron.Kind{k}, Limits: l}
		e := live(t, b, o, slots)
		deliver(t, e.Engine, fresh(t, id("a"), ""))
		for crash := 1; crash <= 3; crash++ {
			<-entered
			waitFor(t, e.Engine, func(s engine.Stats) bool { return s.Running == 1 && s.Records == 0 && attempts(t, b) >= 2 })
			e.killWith(t, b, func() { leave <- struct{}{} })
			e = live(t, b, o, slots)
			rows, err := b.store.Outbox(t.Context(), neuron.AllPlaces(), zero, 10)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rows {
				want := 0
				if r.Target == id("killer") {
					want = crash
				}
				if r.Crashes != want && r.Target != id("a") {
					t.Errorf("after crash %d: %s has %d", crash, r.Target, r.Crashes)
				}
			}
		}
		waitFor(t, e.Engine, func(engine.Stats) bool { return len(dead(t, e.Engine)) == 1 })
		if letter := dead(t, e.Engine)[0]; letter.Code != neuron.CrashedTooOften || letter.Target != id("killer") {
			t.Errorf("dead letter %+v", letter)
		}
	})
}

// N-45: a delivery from outside has no row: its crashes are charged all the same, whoever repeats it.
func TestCrashesOfRepeatedDeliveries(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		slots := filepath.Join(t.TempDir(), "inflight")
		entered, leave := make(chan struct{}, 1), make(chan struct{}, 1)
		calls := 0
		k := neuron.NewKind("test")
		neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error {
			if n.Text != "killer" {
				return nil
			}
			calls++
			entered <- struct{}{}
			<-leave
			return nil
		})
		o := engine.Options{Kinds: []*neuron.Kind{k}}
		killer := fresh(t, id("a"), "killer")
		for range 3 {
			e := live(t, b, o, slots)
			done := make(chan error, 1)
			go func() { done <- e.Accept(t.Context(), killer, put{"accepted", ""}) }()
			<-entered
			e.killWith(t, b, func() { leave <- struct{}{} })
			if err := <-done; err == nil {
				t.Fatal("accepted by the dead")
			}
		}
		e := live(t, b, o, slots)
		if err := e.Accept(t.Context(), killer, put{"accepted", ""}); err != nil {
			t.Fatal(err)
		}
		if letters := dead(t, e.Engine); len(letters) != 1 || letters[0].Code != neuron.CrashedTooOften || calls != 3 || len(b.rows(t)) != 1 {
			t.Errorf("%d calls, dead letters %+v, rows %v", calls, letters, b.rows(t))
		}
		deliver(t, e.Engine, fresh(t, id("a"), "other"))
	})
}

// N-33: whatever the moment of a kill, nothing committed is lost, nothing is doubled, and the outbox drains by itself.
func TestNothingLostNothingDoubled(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		scenario(rt, t, fake())
	})
}

// N-33: the same on a real database, a few times.
func TestNothingLostOnDisk(t *testing.T) {
	for i, kills := range [][]int64{{1}, {2, 3}, {4, 2, 5}, {3, 9, 2, 6}} {
		scenarioOf(t, onDisk(t), kills, 12+i, i)
	}
}

func scenario(rt *rapid.T, t *testing.T, b *base) {
	kills := rapid.SliceOfN(rapid.Int64Range(1, 30), 0, 4).Draw(rt, "kills")
	senders := rapid.IntRange(1, 20).Draw(rt, "senders")
	flaky := rapid.IntRange(0, 3).Draw(rt, "flaky")
	scenarioOf(t, b, kills, senders, flaky)
	if t.Failed() {
		rt.Fatalf("see above")
	}
}

// scenarioOf lets clients repeat their deliveries until they are answered, through kills at the given commits. Each delivery
// sends to two neurons, which send on; every step has an effect that must happen once.
func scenarioOf(t *testing.T, b *base, kills []int64, senders, flaky int) {
	t.Helper()
	var mu sync.Mutex
	tries := map[string]int{}
	k := neuron.NewKind("test")
	neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error {
		key := fmt.Sprintf("%s<%s", turn.Self().Key, n.Text)
		mu.Lock()
		tries[key]++
		fails := tries[key] <= flaky && n.N > 0
		mu.Unlock()
		if fails {
			return errBroken
		}
		turn.Write(once{put{key, ""}})
		sum, err := neuron.State(turn, sumType, nil)
		if err != nil {
			return err
		}
		if err := neuron.SetState(turn, sumType, sum+1); err != nil {
			return err
		}
		for i := range 2 {
			if n.N < 2 {
				to := id(fmt.Sprintf("n%d", (len(n.Text)+i)%5))
				if err := neuron.Send(turn, to, noteType, note{n.Text + fmt.Sprint(i), n.N + 1}); err != nil {
					return err
				}
			}
		}
		return nil
	})
	o := engine.Options{Kinds: []*neuron.Kind{k}}
	var todo []neuron.Delivery
	for i := range senders {
		todo = append(todo, fresh(t, id(fmt.Sprint("s", i%7)), fmt.Sprint("c", i, "-")))
	}
	for run := 0; len(todo) > 0 || run <= len(kills); run++ {
		at := int64(0)
		if run < len(kills) {
			at = kills[run]
		}
		e := liveUntil(t, b, o, "", at)
		answers := make([]error, len(todo))
		var wg sync.WaitGroup
		for i, d := range todo {
			wg.Go(func() {
				if i%2 == 0 {
					answers[i] = e.Deliver(t.Context(), d)
				} else {
					answers[i] = e.Accept(t.Context(), d)
				}
			})
		}
		wg.Wait()
		var open []neuron.Delivery
		for i, err := range answers {
			if err != nil {
				open = append(open, todo[i])
			}
		}
		todo = open
		if run < len(kills) {
			e.kill(t, b)
			continue
		}
		if len(todo) == 0 {
			quiet(t, e.Engine)
			check(t, b, e.Engine, senders)
		}
		e.bury(t)
	}
}

func check(t *testing.T, b *base, e *engine.Engine, senders int) {
	t.Helper()
	rows := b.rows(t)
	if len(rows) != senders*7 {
		t.Errorf("%d effects, want %d", len(rows), senders*7)
	}
	if letters := dead(t, e); len(letters) != 0 {
		t.Errorf("dead letters %+v", letters)
	}
	total := uint64(0)
	for _, prefix := range []string{"s", "n"} {
		for i := range 7 {
			for _, f := range []neuron.Feed{neuron.In, neuron.Out} {
				p := page(t, e, id(fmt.Sprint(prefix, i)), f)
				for j, seq := range p.Seqs {
					if seq != p.First+uint64(j) {
						t.Errorf("%s%d feed %d has a gap: %v", prefix, i, f, p.Seqs)
					}
				}
				if f == neuron.In {
					total += p.Last
				}
			}
		}
	}
	if total != uint64(senders*7) {
		t.Errorf("%d turns, want %d", total, senders*7)
	}
	if left, err := b.store.Outbox(t.Context(), neuron.AllPlaces(), zero, 10); err != nil || len(left) != 0 {
		t.Errorf("outbox %+v, %v", left, err)
	}
}

// A store that cannot go on ends the engine with a clear error, once, and answers everybody.
func TestStoreThatCannotGoOn(t *testing.T) {
	b := fake()
	k := neuron.NewKind("test")
	neuron.Handle(k, noteType, func(*neuron.Turn, note) error { return nil })
	var fatal []error
	wire := &killed{Store: b.store, at: 2}
	e := start(t, b, engine.Options{Store: wire, Kinds: []*neuron.Kind{k}, Fatal: func(err error) { fatal = append(fatal, err) }})
	deliver(t, e, fresh(t, id("a"), ""))
	for range 3 {
		if err := e.Deliver(t.Context(), fresh(t, id("a"), "")); !errors.Is(err, neuron.ErrFenced) {
			t.Errorf("after the fence: %v", err)
		}
	}
	stop(t, e)
	if len(fatal) != 1 || !errors.Is(fatal[0], neuron.ErrFenced) {
		t.Errorf("fatal: %v", fatal)
	}
}

// A commit hook that panics ends the engine with a clear error; nobody waits for ever.
func TestCommitHookThatPanics(t *testing.T) {
	b := fake()
	var fatal error
	e := start(t, b, engine.Options{
		Kinds: []*neuron.Kind{counting()}, Committed: func([]*neuron.Record) { panic("projection") }, Fatal: func(err error) { fatal = err },
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := e.Deliver(ctx, fresh(t, id("a"), "")); err != nil {
		t.Errorf("what is committed: %v", err)
	}
	if err := e.Deliver(ctx, fresh(t, id("a"), "")); err == nil || !strings.Contains(err.Error(), "projection") {
		t.Errorf("after the panic: %v", err)
	}
	stop(t, e)
	if fatal == nil || !strings.Contains(fatal.Error(), "projection") {
		t.Errorf("fatal: %v", fatal)
	}
}

// A goroutine of the engine that ends out of turn ends the program: it would be missed for ever.
func TestLostWorkerEndsTheProgram(t *testing.T) {
	const mark = "SOMA_TEST_LOST_WORKER"
	if os.Getenv(mark) != "" {
		k := neuron.NewKind("test")
		neuron.Handle(k, noteType, func(*neuron.Turn, note) error { runtime.Goexit(); return nil })
		e := start(t, fake(), engine.Options{Kinds: []*neuron.Kind{k}})
		t.Error(e.Deliver(t.Context(), fresh(t, id("a"), "")))
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestLostWorkerEndsTheProgram$")
	cmd.Env = append(os.Environ(), mark+"=1")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "the engine's worker: panic") {
		t.Errorf("%v\n%s", err, out)
	}
}

// Two engines on one database: the older one is fenced and commits nothing (N-07).
func TestOlderEngineIsFenced(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		k := neuron.NewKind("test")
		neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error { turn.Write(put{n.Text, ""}); return nil })
		old := start(t, b, engine.Options{Kinds: []*neuron.Kind{k}})
		deliver(t, old, fresh(t, id("a"), "1"))
		for i, node := range []string{"", "another"} { // by its own restart, by another daemon
			now := start(t, b, engine.Options{Kinds: []*neuron.Kind{k}, Node: node})
			if err := old.Deliver(t.Context(), fresh(t, id("a"), "late")); !errors.Is(err, neuron.ErrFenced) {
				t.Errorf("the older engine, after %q: %v", node, err)
			}
			deliver(t, now, fresh(t, id("a"), "3"+node))
			rows := b.rows(t)
			if _, ok := rows["late"]; ok || len(rows) != i+2 {
				t.Errorf("rows %v", rows)
			}
			old = now
		}
	})
}
