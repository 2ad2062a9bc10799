package call_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/call"
	"soma/internal/neuron/engine"
)

// N-31: a caller waits until its deadline and no longer; what the method has not committed by then is never committed.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fake()
		short := call.New[note, note]("test.short", "say", call.Deadline(3*time.Second))
		var waited time.Duration
		k := kind(func(turn *neuron.Turn, n note) error {
			began := time.Now()
			_, err := call.Do(turn, short, id("b"), n)
			waited = time.Since(began)
			var failed *call.FailedError
			if !errors.As(err, &failed) || failed.Code != call.TooLate {
				t.Errorf("the call ended with %v", err)
			}
			return nil
		})
		call.Serve(k, short, func(turn *neuron.Turn, n note) (note, error) {
			turn.Write(put{"effect", ""})
			if until, ok := turn.Context().Deadline(); !ok || time.Until(until) > 3*time.Second {
				t.Errorf("the attempt ends at %v", until)
			}
			if n.Text == "heedless" {
				pass(4 * time.Second)
				return n, nil
			}
			<-turn.Context().Done()
			return n, turn.Context().Err()
		})
		e := startTyped(t, b, append(types, short.Alias()), k)
		for _, text := range []string{"heedful", "heedless"} {
			if err := e.run(id(text), text); err != nil {
				t.Error(err)
			}
			if waited < 3*time.Second || waited > 3*time.Second+100*time.Millisecond {
				t.Errorf("%s: waited for %s", text, waited)
			}
			e.wantClean()
			e.wantFacts(id(text), "requested", "failed(deadline)")
		}
		if len(b.rows(t)) != 0 {
			t.Errorf("rows %v", b.rows(t))
		}
	})
}

func startTyped(t testing.TB, b *base, types []string, kinds ...*neuron.Kind) *world {
	t.Helper()
	e, err := engine.New(engine.Options{Store: b.store, Kinds: kinds, Types: types, Limits: quick()})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{Engine: e, t: t, b: b}
	w.begin()
	return w
}

// N-31: the attempt of the caller bounds the wait too, and a request that is delivered too late runs nothing.
func TestAttemptBoundsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fake()
		var runs counter
		leave := make(chan struct{})
		k := kind(func(turn *neuron.Turn, n note) error {
			if n.Text == "occupy" {
				<-leave
				return nil
			}
			_, err := call.Do(turn, echo, id("busy"), n)
			if !errors.Is(err, call.ErrFailed) {
				t.Errorf("%v", err)
			}
			return nil
		})
		call.Serve(k, echo, func(turn *neuron.Turn, n note) (note, error) { runs.add("method"); return n, nil })
		limits := quick()
		limits.AttemptTime = 5 * time.Second
		w := startUntil(t, b, 0, limits, k)
		occupied := make(chan error, 1)
		go func() { occupied <- w.run(id("busy"), "occupy") }()
		synctest.Wait()
		began := time.Now()
		if err := w.run(id("a"), "ask"); err != nil {
			t.Error(err)
		}
		if d := time.Since(began); d < 5*time.Second || d > 5100*time.Millisecond {
			t.Errorf("waited for %s", d)
		}
		close(leave)
		if err := <-occupied; err != nil {
			t.Error(err)
		}
		w.wantClean()
		w.wantFacts(id("a"), "requested", "failed(deadline)")
		in := w.entries(id("busy"), neuron.In)
		if len(in) != 2 || in[1].Settled != call.NoRequest || runs.of("method") != 0 {
			t.Fatalf("accepted %+v", in)
		}
		if d := in[1].Request.Until.Sub(in[1].At); d > 5*time.Second {
			t.Errorf("the request says that its caller waits for %s", d)
		}
	})
}

// N-27, N-31: a handler that runs again when its deadline has passed asks again under the same id; the delivery of the earlier
// asking runs nothing any more, the method runs once.
func TestAskedAgainAfterTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fake()
		var runs counter
		leave := make(chan struct{})
		k := kind(func(turn *neuron.Turn, n note) error {
			if n.Text == "occupy" {
				<-leave
				return nil
			}
			_, err := call.Do(turn, echo, id("busy"), n)
			return err
		})
		call.Serve(k, echo, func(turn *neuron.Turn, n note) (note, error) { runs.add("method"); return n, nil })
		w := start(t, b, k)
		occupied := make(chan error, 1)
		go func() { occupied <- w.run(id("busy"), "occupy") }()
		synctest.Wait()
		asked := make(chan error, 1)
		go func() { asked <- w.Accept(t.Context(), fresh(t, id("a"), "ask")) }()
		pass(2*call.DefaultDeadline + 10*time.Second)
		close(leave)
		for _, c := range []chan error{occupied, asked} {
			if err := <-c; err != nil {
				t.Error(err)
			}
		}
		w.wantClean()
		facts := w.wantFacts(id("a"), "requested", "completed")
		in := w.entries(id("busy"), neuron.In)
		if len(in) != 4 || in[1].Settled != call.NoRequest || in[2].Settled != call.NoRequest || in[3].Settled != "" || runs.of("method") != 1 {
			t.Errorf("accepted %+v, %v", in, runs.n)
		}
		for _, e := range in[1:] {
			if e.Request.ID != facts[0].Request {
				t.Errorf("asked as %s, want %s", e.Request.ID, facts[0].Request)
			}
		}
	})
}

// N-31: whoever asks a neuron that waits for it is refused at once, and nothing is asked; so are two trees that meet, of which
// one goes on and the other follows.
func TestCyclesAreRefused(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		ring := func(turn *neuron.Turn, n note) (note, error) {
			path := strings.Split(n.Text, ">")
			if len(path) == 1 {
				return n, nil
			}
			return call.Do(turn, echo, id(path[1]), note{Text: strings.Join(path[1:], ">")})
		}
		k := kind(func(turn *neuron.Turn, n note) error { _, err := ring(turn, n); return err })
		call.Serve(k, echo, ring)
		w := start(t, b, k)
		for path, want := range map[string]int{"a>a": 0, "p>q>p": 1, "x>y>z>x": 2, "l>m>n>m": 2} {
			var refusal *neuron.Refusal
			first, _, _ := strings.Cut(path, ">")
			began := time.Now()
			if err := w.run(id(first), path); !errors.As(err, &refusal) || refusal.Code != call.WouldDeadlock {
				t.Errorf("%s: %v", path, err)
			}
			if d := time.Since(began); d > 20*time.Second {
				t.Errorf("%s took %s", path, d)
			}
			requests := 0
			for _, name := range strings.Split(path, ">")[:strings.Count(path, ">")] {
				facts := w.facts(id(name))
				requests += len(facts) / 2
				if len(facts) == 2 && (facts[1].alias != "rejected" || facts[1].Code != call.WouldDeadlock) {
					t.Errorf("%s: %s tells %+v", path, name, facts)
				}
			}
			if requests != want {
				t.Errorf("%s: %d requests, want %d", path, requests, want)
			}
		}
		w.wantClean()
	})
}

// N-31: two trees that wait for each other's roots: neither waits for its deadline, both come to their end.
func TestTwoTreesAtOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		both := [2]chan struct{}{make(chan struct{}), make(chan struct{})}
		var met counter
		k := kind(func(turn *neuron.Turn, n note) error {
			me, other := n.N, 1-n.N
			if met.add(turn.Self().Key) == 1 { // at the first attempt each waits for the other to have begun
				close(both[me])
				<-both[other]
			}
			_, err := call.Do(turn, echo, id(fmt.Sprint("root", other)), n)
			if errors.Is(err, neuron.ErrWouldDeadlock) {
				met.add("refused")
			}
			return err
		})
		call.Serve(k, echo, func(turn *neuron.Turn, n note) (note, error) {
			turn.Write(put{fmt.Sprint("served", n.N), ""})
			return n, nil
		})
		w := start(t, b, k)
		began := time.Now()
		for i := range 2 {
			d, err := goType.New(id(fmt.Sprint("root", i)), note{N: i}, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				if err := w.Accept(t.Context(), d); err != nil {
					t.Error(err)
				}
			}()
		}
		<-both[0]
		<-both[1]
		w.wantClean()
		if d := time.Since(began); d > 20*time.Second || met.of("refused") == 0 {
			t.Errorf("took %s, refused %d times", d, met.of("refused"))
		}
		for i := range 2 {
			w.wantFacts(id(fmt.Sprint("root", i)), "requested", "completed")
		}
		if n := len(b.rows(t)); n != 2 {
			t.Errorf("%d methods ran", n)
		}
	})
}

// N-29, N-43: a neuron of another owner is rejected unless a rail says exactly: this method, from there to here.
func TestOwners(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		to := neuron.ID{Owner: "system", Kind: "server", Key: "s"}
		rail := func(method string, from, to call.End) call.Rail {
			return call.Rail{Contract: "test.ledger", Method: method, From: from, To: to}
		}
		mine, there := call.End{Owner: "me", Kind: "test"}, call.End{Owner: "system", Kind: "server"}
		contracts := map[string]call.Contract[note, note]{
			"open":     call.New[note, note]("test.ledger", "open", call.Over(rail("open", mine, there))),
			"closed":   call.New[note, note]("test.ledger", "closed"),
			"reversed": call.New[note, note]("test.ledger", "reversed", call.Over(rail("reversed", there, mine))),
			"others":   call.New[note, note]("test.ledger", "others", call.Over(rail("others", call.End{Owner: "you", Kind: "test"}, there))),
			"target":   call.New[note, note]("test.ledger", "target", call.Over(rail("target", mine, call.End{Owner: "system", Kind: "servers"}))),
			"kinds":    call.New[note, note]("test.ledger", "kinds", call.Over(rail("kinds", call.End{Owner: "me", Kind: "tests"}, there))),
		}
		k := kind(func(turn *neuron.Turn, n note) error {
			_, err := call.Do(turn, contracts[n.Text], to, n)
			return err
		})
		server := neuron.NewKind("server")
		all := types
		for name, c := range contracts {
			all = append(all, c.Alias())
			call.Serve(server, c, func(turn *neuron.Turn, n note) (note, error) {
				turn.Write(put{name, ""})
				return n, nil
			})
		}
		w := startTyped(t, b, all, k, server)
		for name := range contracts {
			err := w.run(id(name), name)
			if name == "open" {
				if err != nil {
					t.Error(err)
				}
				w.wantFacts(id(name), "requested", "completed")
				continue
			}
			var refusal *neuron.Refusal
			if !errors.As(err, &refusal) || refusal.Code != call.CrossOwner {
				t.Errorf("%s: %v", name, err)
			}
			w.wantFacts(id(name), "requested", "rejected(cross_owner)")
		}
		if rows := b.rows(t); len(rows) != 1 {
			t.Errorf("rows %v", rows)
		}
		w.wantClean()
	})
	for _, bad := range []call.Option{
		call.Over(call.Rail{Contract: "c", Method: "m", From: call.End{Owner: "*", Kind: "k"}, To: call.End{Owner: "o", Kind: "k"}}),
		call.Over(call.Rail{Contract: "c", Method: "m", From: call.End{Owner: "o", Kind: "k"}, To: call.End{Owner: "o"}}),
		call.Over(call.Rail{Contract: "*", Method: "m", From: call.End{Owner: "o", Kind: "k"}, To: call.End{Owner: "o", Kind: "k"}}),
		call.Over(call.Rail{Contract: "c", Method: "n", From: call.End{Owner: "o", Kind: "k"}, To: call.End{Owner: "o", Kind: "k"}}),
		call.Deadline(-1),
	} {
		k := neuron.NewKind("k")
		call.Serve(k, call.New[note, note]("c", "m", bad), func(*neuron.Turn, note) (note, error) { return note{}, nil })
		if len(k.Check()) == 0 {
			t.Errorf("a contract with %T passes", bad)
		}
	}
}

// N-29: from outside only an entry may be called, and only by a request that was committed.
func TestOutside(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		k := kind(func(*neuron.Turn, note) error { return nil })
		method := func(turn *neuron.Turn, n note) (note, error) {
			turn.Write(put{n.Text, ""})
			if n.Text == "refused" {
				return note{}, neuron.SettleAs("closed", errBroken)
			}
			return note{Text: n.Text + " back"}, nil
		}
		call.Serve(k, echo, method)
		call.Serve(k, door, method)
		w := start(t, b, k)
		if got, err := call.Outside(w.Outside(t.Context()), door, id("b"), note{Text: "hello"}); err != nil || got.Text != "hello back" {
			t.Errorf("%+v, %v", got, err)
		}
		for text, code := range map[string]neuron.Code{"refused": "closed", "stranger": call.Unattributed} {
			c := door
			if text == "stranger" {
				c = echo
			}
			var refusal *neuron.Refusal
			if _, err := call.Outside(w.Outside(t.Context()), c, id("b"), note{Text: text}); !errors.As(err, &refusal) || refusal.Code != code {
				t.Errorf("%s: %v", text, err)
			}
		}
		// Deliveries that only look like calls.
		for _, c := range []struct {
			alias  string
			caller neuron.ID
			code   neuron.Code
		}{{door.Alias(), neuron.ID{}, call.Unattributed}, {echo.Alias(), id("liar"), call.NoRequest}} {
			now := time.Now()
			err := w.Deliver(t.Context(), neuron.Delivery{ID: ident.New(now), Alias: c.alias, Payload: []byte(`{"text":"forged"}`), Caller: c.caller, Target: id("b"), At: now})
			var refusal *neuron.Refusal
			if !errors.As(err, &refusal) || refusal.Code != c.code {
				t.Errorf("%s by %s: %v", c.alias, c.caller, err)
			}
		}
		forged := neuron.Delivery{ID: ident.New(time.Now()), Alias: echo.Alias(), Target: id("b"), Request: &neuron.Request{ID: ident.New(time.Now())}}
		if err := w.Deliver(t.Context(), forged); err == nil {
			t.Error("a delivery from outside names a call")
		}
		w.wantClean()
		if rows := b.rows(t); len(rows) != 1 {
			t.Errorf("rows %v", rows)
		}
	})
}

// N-29: a request that another neuron committed, or for another target or method, attributes nothing.
func TestStolenRequest(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		var w *world
		k := kind(func(turn *neuron.Turn, n note) error {
			_, err := call.Do(turn, echo, id("b"), n)
			return err
		})
		call.Serve(k, door, func(turn *neuron.Turn, n note) (note, error) {
			turn.Write(put{"stolen", ""})
			return n, nil
		})
		call.Serve(k, echo, func(turn *neuron.Turn, n note) (note, error) {
			// While this request is open, a thief uses it.
			mine := *turn.Delivery()
			for i, change := range []func(*neuron.Delivery){
				func(d *neuron.Delivery) { d.Caller = id("thief") },
				func(d *neuron.Delivery) { d.Alias = door.Alias() },
				func(d *neuron.Delivery) {},
			} {
				d := mine
				d.ID, d.Target = ident.New(time.Now()), id(fmt.Sprint("victim", i))
				change(&d)
				row := neuron.OutboxRow{Delivery: d, Place: turn.PlaceOf(d.Target), Due: turn.Now(), Attempts: 1}
				if err := turn.Commit(neuron.Step{Sends: []neuron.Delivery{row.Delivery}}); err != nil {
					t.Error(err)
				}
			}
			return n, nil
		})
		w = start(t, b, k)
		if err := w.run(id("a"), "x"); err != nil {
			t.Error(err)
		}
		w.wantClean()
		for i := range 3 {
			in := w.entries(id(fmt.Sprint("victim", i)), neuron.In)
			if len(in) != 1 || in[0].Settled != call.NoRequest {
				t.Errorf("victim %d accepted %+v", i, in)
			}
		}
		w.wantFacts(id("a"), "requested", "completed")
		if len(b.rows(t)) != 0 {
			t.Error("a stolen request ran a method")
		}
	})
}
