package exchange_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"soma/ident"
	"soma/session"
	"soma/session/exchange"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wants(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("the error is %v, want %v", err, want)
	}
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: %v, want %v", what, got, want)
	}
}

// owners makes an exchange with n mailboxes.
func owners(t *testing.T, o exchange.Options, n int) (*exchange.Exchange, []ident.ID) {
	t.Helper()
	x := exchange.New(o)
	ids := make([]ident.ID, n)
	for i := range ids {
		ids[i] = ident.New(time.Now())
		ok(t, x.Register(ids[i]))
	}
	return x, ids
}

func send(t *testing.T, x *exchange.Exchange, from, to ident.ID, content any) session.Letter {
	t.Helper()
	l, err := x.Send(from, to, content, "")
	ok(t, err)
	return l
}

func collect(t *testing.T, x *exchange.Exchange, owner ident.ID) int {
	t.Helper()
	n, err := x.Collect(t.Context(), owner)
	ok(t, err)
	return n
}

func contents(letters []session.Letter) string {
	var all []any
	for _, l := range letters {
		all = append(all, l.Content)
	}
	return strings.TrimSpace(fmt.Sprintln(all...))
}

// S-40
func TestMailboxes(t *testing.T) {
	x, ids := owners(t, exchange.Options{}, 2)
	a, b := ids[0], ids[1]
	wants(t, x.Register(a), session.ErrExists)
	wants(t, x.Register(ident.ID{}), session.ErrInvalid)
	if letters := x.Unregister(ident.New(time.Now())); letters != nil {
		t.Fatalf("an unknown owner had %v", letters)
	}
	send(t, x, a, b, "one")
	box, found := x.Get(b)
	equal(t, "found", found, true)
	equal(t, "owner", box.Owner(), b)
	equal(t, "before", fmt.Sprint(box.Names()), "[outbox]")
	collect(t, x, a)
	equal(t, "after", fmt.Sprint(box.Names()), "[outbox inbox_"+a.String()+"]")
	equal(t, "inbox", contents(box.Letters("inbox_"+a.String())), "one")
	for _, other := range []string{"inbox_" + b.String(), "inbox_x", "x"} {
		if letters := box.Letters(other); len(letters) > 0 {
			t.Fatalf("%s holds %v", other, letters)
		}
	}
	send(t, x, b, a, "two")
	equal(t, "outbox", contents(box.Letters("outbox")), "two")
	equal(t, "dropped", contents(x.Unregister(b)), "two one")
	equal(t, "counted", x.Dropped(), 2)
	equal(t, "emptied", len(box.Names())+len(box.Letters("outbox")), 1)
	ok(t, x.Register(b))
	equal(t, "a new mailbox", len(x.Receive(b)), 0)
	equal(t, "collected for nobody", collect(t, x, b), 0)
}

// S-41
func TestSend(t *testing.T) {
	x, ids := owners(t, exchange.Options{}, 2)
	a, b := ids[0], ids[1]
	_, err := x.Send(ident.New(time.Now()), b, "lost", "")
	wants(t, err, session.ErrNotFound)
	l, err := x.Send(a, b, "hello", "side")
	ok(t, err)
	if l.ID.IsZero() || l.Time.IsZero() || l.Sender != a || l.Recipient != b || l.Channel != "side" {
		t.Fatalf("the letter is %+v", l)
	}
	equal(t, "not delivered", len(x.Receive(b)), 0)
	collect(t, x, a)
	got := x.Receive(b)
	if len(got) != 1 || got[0] != l {
		t.Fatalf("arrived is %+v, sent %+v", got, l)
	}
}

// S-42
func TestCollect(t *testing.T) {
	x, ids := owners(t, exchange.Options{}, 4)
	a, b, c, gone := ids[0], ids[1], ids[2], ids[3]
	_, err := x.Collect(t.Context(), ident.New(time.Now()))
	wants(t, err, session.ErrNotFound)
	equal(t, "empty", collect(t, x, a), 0)

	all := send(t, x, a, ident.ID{}, "all")
	send(t, x, a, b, "b")
	send(t, x, a, a, "self")
	send(t, x, a, gone, "gone")
	x.Unregister(gone)
	equal(t, "letters", collect(t, x, a), 3)
	equal(t, "b has", contents(x.Receive(b)), "all b")
	equal(t, "c has", contents(x.Receive(c)), "all")
	equal(t, "a has", contents(x.Receive(a)), "self")
	equal(t, "dropped", x.Dropped(), 1)
	for _, owner := range []ident.ID{b, c} {
		l := x.Receive(owner)[0]
		if l.ID != all.ID || !l.Recipient.IsZero() {
			t.Fatalf("the copy is %+v of %+v", l, all)
		}
	}
	equal(t, "again", collect(t, x, a), 0)

	lonely, ids := owners(t, exchange.Options{}, 1)
	send(t, lonely, ids[0], ident.ID{}, "nobody")
	equal(t, "for nobody", collect(t, lonely, ids[0]), 0)
	equal(t, "lost", lonely.Dropped(), 1)
	equal(t, "consumed", collect(t, lonely, ids[0]), 0)
}

// S-42
func TestSyncCollectsFromAll(t *testing.T) {
	x, ids := owners(t, exchange.Options{}, 3)
	for i, from := range ids {
		send(t, x, from, ids[(i+1)%3], i)
	}
	n, err := x.Sync(t.Context())
	ok(t, err)
	equal(t, "letters", n, 3)
	for i, from := range ids {
		equal(t, "got", contents(x.Receive(ids[(i+1)%3], from)), fmt.Sprint(i))
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = x.CollectAll(over)
	wants(t, err, context.Canceled)
	_, err = x.Collect(over, ids[0])
	wants(t, err, context.Canceled)
}

// S-43, S-47: a full inbox keeps letters at their sender, in order; they have their place in the outbox's bound.
func TestFullInbox(t *testing.T) {
	x, ids := owners(t, exchange.Options{Bound: 3}, 3)
	a, b, c := ids[0], ids[1], ids[2]
	for i := range 3 {
		send(t, x, a, b, i)
	}
	_, err := x.Send(a, b, 3, "")
	wants(t, err, session.ErrFull)
	equal(t, "first", collect(t, x, a), 3)
	send(t, x, a, b, 3)
	send(t, x, a, ident.ID{}, 4)
	equal(t, "second", collect(t, x, a), 2)
	equal(t, "others are not held up", contents(x.Receive(c)), "4")
	waiting := x.Pending(a)
	if len(waiting) != 2 || waiting[0].Content != 3 || waiting[1].Content != 4 || waiting[1].To != b || !waiting[1].Recipient.IsZero() {
		t.Fatalf("pending is %+v", waiting)
	}
	send(t, x, a, b, 5)
	_, err = x.Send(a, b, 6, "")
	wants(t, err, session.ErrFull)

	l, found := x.Pop(b, a)
	if !found || l.Content != 0 {
		t.Fatalf("popped %+v", l)
	}
	collect(t, x, a)
	equal(t, "b", contents(x.Receive(b)), "1 2 3")
	equal(t, "still pending", len(x.Pending(a)), 2)
	equal(t, "nothing is lost", x.Dropped(), 0)
	drained := x.Drain(a)
	equal(t, "drained", fmt.Sprint(drained[0].Content, drained[1].Content), "4 5")
	equal(t, "no more", len(x.Drain(a))+len(x.Pending(a))+len(x.Pending(ident.New(time.Now())))+len(x.Drain(ident.New(time.Now()))), 0)
	x.Pop(b, a)
	equal(t, "nothing is left to try", collect(t, x, a), 0)
	equal(t, "drained mail is not lost", x.Dropped(), 0)
}

// S-47: what nobody sets is 10,000.
func TestDefaultBound(t *testing.T) {
	x, ids := owners(t, exchange.Options{}, 2)
	for range 10_000 {
		send(t, x, ids[0], ids[1], 0)
	}
	_, err := x.Send(ids[0], ids[1], 0, "")
	wants(t, err, session.ErrFull)
	equal(t, "letters", collect(t, x, ids[0]), 10_000)
	send(t, x, ids[0], ids[1], 0)
	collect(t, x, ids[0])
	equal(t, "arrived", len(x.Receive(ids[1])), 10_000)
	equal(t, "waits", len(x.Pending(ids[0])), 1)
	x.Unregister(ids[0])
	equal(t, "what waits is lost with its sender", x.Dropped(), 1)
}

// S-44
func TestReceiveAndPop(t *testing.T) {
	x, ids := owners(t, exchange.Options{}, 3)
	a, b, c := ids[0], ids[1], ids[2]
	for i := range 6 {
		from := a
		if i%2 == 1 {
			from = c
		}
		send(t, x, from, b, i)
		collect(t, x, from)
	}
	for range 2 { // reading takes nothing out
		equal(t, "all", contents(x.Receive(b)), "0 1 2 3 4 5")
		equal(t, "of a", contents(x.Receive(b, a)), "0 2 4")
		equal(t, "of both", contents(x.Receive(b, c, a, c)), "0 1 2 3 4 5")
		equal(t, "of nobody", len(x.Receive(b, b)), 0)
	}
	for _, want := range []int{1, 3, 5} {
		l, found := x.Pop(b, c)
		if !found || l.Content != want {
			t.Fatalf("popped %v, want %d", l.Content, want)
		}
	}
	_, found := x.Pop(b, c)
	equal(t, "empty", found, false)
	_, found = x.Pop(ident.New(time.Now()), a)
	equal(t, "unknown", found, false)
	equal(t, "unknown has", len(x.Receive(ident.New(time.Now()))), 0)
	equal(t, "left", contents(x.Receive(b)), "0 2 4")
}

// S-44: the pump works at once, then each interval, and stops when it is asked to.
func TestRun(t *testing.T) {
	for _, interval := range []time.Duration{0, time.Minute} {
		want := interval
		if want == 0 {
			want = exchange.Interval
		}
		synctest.Test(t, func(t *testing.T) {
			x, ids := owners(t, exchange.Options{}, 2)
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			send(t, x, ids[0], ids[1], "first")
			go func() { ended <- x.Run(ctx, interval) }()
			synctest.Wait()
			equal(t, "at once", contents(x.Receive(ids[1])), "first")
			send(t, x, ids[0], ids[1], "second")
			<-time.After(want - 1)
			synctest.Wait()
			equal(t, "not before its time", contents(x.Receive(ids[1])), "first")
			<-time.After(1)
			synctest.Wait()
			equal(t, "in time", contents(x.Receive(ids[1])), "first second")
			stop()
			wants(t, <-ended, context.Canceled)
			send(t, x, ids[0], ids[1], "third")
			<-time.After(2 * want)
			equal(t, "stopped", contents(x.Receive(ids[1])), "first second")
		})
	}
}

// S-47: sessions register their members and offer mail, and pump nothing.
func TestSessionWithMail(t *testing.T) {
	x := exchange.New(exchange.Options{})
	s, err := session.New(session.Options{Mail: x})
	ok(t, err)
	b, err := s.NewBranch(session.BranchOptions{})
	ok(t, err)
	person := ident.New(time.Now())
	ok(t, s.RegisterParticipant(person))
	wants(t, x.RegisterParticipant(person), session.ErrExists)
	want := []ident.ID{s.Default().ID(), b.ID(), person}
	if got := x.Owners(); !slices.Equal(got, want) {
		t.Fatalf("owners are %v, want %v", got, want)
	}
	_, err = s.Send(person, b.ID(), "hello", "")
	ok(t, err)
	equal(t, "nothing is pumped", len(s.Receive(b.ID())), 0)
	n, err := s.Collect(t.Context(), person)
	ok(t, err)
	equal(t, "letters", n, 1)
	l, _ := s.Pop(b.ID(), person)
	equal(t, "content", l.Content, any("hello"))
	_, err = s.Remove(b.ID())
	ok(t, err)
	equal(t, "the mailbox goes with its branch", x.Has(b.ID()), false)
	equal(t, "others stay", x.Has(person), true)
	_, found := x.Get(b.ID())
	equal(t, "found", found, false)
}

// S-45
func TestLinear(t *testing.T) {
	round := func(letters int) time.Duration {
		x, ids := owners(t, exchange.Options{}, 10)
		began := time.Now()
		for i := range letters {
			send(t, x, ids[i%10], ids[(i+1)%10], i)
		}
		n, err := x.Sync(t.Context())
		ok(t, err)
		equal(t, "letters", n, letters)
		for i := range letters {
			if l, found := x.Pop(ids[(i+1)%10], ids[i%10]); !found || l.Content != i {
				t.Fatalf("letter %d is %v", i, l.Content)
			}
		}
		return time.Since(began)
	}
	// What is quadratic costs a hundred times as much. Each attempt can be disturbed, all of them cannot.
	small, big := time.Hour, time.Hour
	for range 100 {
		small, big = min(small, round(1_000)), min(big, round(10_000))
		if big < 40*small {
			return
		}
	}
	t.Errorf("1,000 letters take %v, 10,000 %v", small, big)
}

// S-42: owners come and go while others send and collect. Every letter arrives once, waits, or is counted as dropped.
func TestTogether(t *testing.T) {
	x, ids := owners(t, exchange.Options{Bound: 50}, 6)
	const each = 300
	var sent, popped [6]int
	var wg sync.WaitGroup
	for i, id := range ids {
		wg.Go(func() {
			for n := range each {
				if _, err := x.Send(id, ids[(i+n)%6], n, ""); err == nil {
					sent[i]++
				} else if !errors.Is(err, session.ErrFull) && !errors.Is(err, session.ErrNotFound) {
					t.Errorf("cannot send: %v", err)
				}
				if _, err := x.Collect(t.Context(), id); err != nil && !errors.Is(err, session.ErrNotFound) {
					t.Errorf("cannot collect: %v", err)
				}
				for _, from := range ids {
					if _, found := x.Pop(id, from); found {
						popped[i]++
					}
				}
				if i == 0 && n%10 == 0 {
					x.Unregister(id)
					if err := x.Register(id); err != nil {
						t.Errorf("cannot register: %v", err)
					}
				}
			}
		})
		wg.Go(func() {
			for range each {
				if _, err := x.Sync(t.Context()); err != nil {
					t.Errorf("cannot collect: %v", err)
				}
			}
		})
	}
	wg.Wait()
	total, got := 0, int(x.Dropped())
	for i, id := range ids {
		total += sent[i]
		got += popped[i] + len(x.Receive(id)) + len(x.Pending(id))
		box, _ := x.Get(id)
		got += len(box.Letters(exchange.Outbox))
	}
	equal(t, "letters that are accounted for", got, total)
}

// S-43, S-44: letters to one recipient come in order, also if its inbox is full now and then, and is read meanwhile.
func TestOrderBesideAReader(t *testing.T) {
	x, ids := owners(t, exchange.Options{Bound: 40}, 2)
	const letters = 2_000
	var wg sync.WaitGroup
	pump, stop := context.WithCancel(t.Context())
	wg.Go(func() {
		for n := 0; n < letters && pump.Err() == nil; {
			if _, err := x.Send(ids[0], ids[1], n, ""); err == nil {
				n++
				if n%7 != 0 {
					continue
				}
			}
			if _, err := x.Collect(t.Context(), ids[0]); err != nil {
				t.Errorf("cannot collect: %v", err)
			}
			runtime.Gosched()
		}
	})
	wg.Go(func() {
		for pump.Err() == nil {
			if _, err := x.Sync(pump); err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("cannot collect: %v", err)
			}
			runtime.Gosched()
		}
	})
	for want := 0; want < letters; {
		l, found := x.Pop(ids[1], ids[0])
		if found && l.Content != want {
			t.Errorf("letter %v comes before %d", l.Content, want)
			break
		}
		if found {
			want++
		}
		runtime.Gosched()
	}
	stop()
	wg.Wait()
}
