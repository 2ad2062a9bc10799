package storetest

import (
	"testing"

	"soma/ident"
	"soma/internal/neuron"
)

func testEmpty(t *testing.T, e Engine) {
	s := open(t, e)
	id := neuron.ID{Owner: "me", Kind: "suite", Key: "nobody"}
	n, err := s.Neuron(t.Context(), id)
	if err != nil || n.Key != 0 || n.InSeq != 0 {
		t.Errorf("neuron: %+v, %v", n, err)
	}
	if ok, err := s.Settled(t.Context(), 1, ident.New(at)); err != nil || ok {
		t.Errorf("settled: %v, %v", ok, err)
	}
	for _, f := range []neuron.Feed{neuron.In, neuron.Out} {
		p, err := s.Entries(t.Context(), id, f, 0, 10)
		if err != nil || p.First != 1 || p.Last != 0 || p.Reset || len(p.Entries) != 0 {
			t.Errorf("feed %d: %+v, %v", f, p, err)
		}
	}
	if rows, err := s.Outbox(t.Context(), neuron.AllPlaces(), ident.ID{}, 10); err != nil || len(rows) != 0 {
		t.Errorf("outbox: %v, %v", rows, err)
	}
	if rows, err := s.Executions(t.Context(), neuron.AllPlaces(), ident.ID{}, 10); err != nil || len(rows) != 0 {
		t.Errorf("executions: %v, %v", rows, err)
	}
	if rows, err := s.DeadLetters(t.Context(), ident.ID{}, 10); err != nil || len(rows) != 0 {
		t.Errorf("dead letters: %v, %v", rows, err)
	}
}

// testTurns walks a neuron through its first turns and compares its row after each.
func testTurns(t *testing.T, e Engine) {
	s := open(t, e)
	f := claim(t, e, s)
	a, b := newActor("a", 1), newActor("b", 2)
	for i, st := range []step{{}, {state: "one"}, {sends: 3}, {payload: 10, sends: 1, state: "two"}, {}} {
		ra, rb := a.turn(st), b.turn(step{})
		commit(t, s, f, ra, rb)
		if e.Take == nil && (ra.Turn.Pos >= rb.Turn.Pos || ra.Turn.Pos <= 0) {
			t.Fatalf("turn %d: positions %d, %d", i, ra.Turn.Pos, rb.Turn.Pos)
		}
		a.verify(t, s)
		b.verify(t, s)
	}
}

// verify compares the row and both feeds, from the start and page by page.
func (a *actor) verify(t *testing.T, s neuron.Store) {
	t.Helper()
	n, err := s.Neuron(t.Context(), a.id)
	if err != nil {
		t.Fatal(err)
	}
	a.checkRow(t, n)
	for _, f := range []neuron.Feed{neuron.In, neuron.Out} {
		all, _ := a.feed(f)
		last := uint64(len(all))
		for _, c := range []struct {
			after uint64
			limit int
		}{{0, 1000}, {last - min(last, 300), 10}, {last - min(1, last), 1000}, {last, 1000}} {
			p, err := s.Entries(t.Context(), a.id, f, c.after, c.limit)
			if err != nil {
				t.Fatal(err)
			}
			a.checkPage(t, f, c.after, c.limit, p)
		}
	}
}

// testCheckpoint: the neuron's row is the checkpoint moved on by the turns after it.
func testCheckpoint(t *testing.T, e Engine) {
	// N-13
	s := open(t, e)
	f := claim(t, e, s)
	a := newActor("a", 1)
	a.every = 4
	for i := range 11 {
		st := step{sends: i % 3}
		if i%5 == 1 {
			st.state = string(rune('a' + i))
		}
		commit(t, s, f, a.turn(st))
		a.verify(t, s)
	}
}

// testSteps: what turns commit ahead of their own rows is in the outgoing feed and its tallies, and nowhere else: whether the
// turn follows, was retracted, or is the first of its neuron.
func testSteps(t *testing.T, e Engine) {
	// N-13, N-27
	s := open(t, e)
	f := claim(t, e, s)
	a := newActor("a", 1)
	a.every = 4
	commit(t, s, f, a.ahead(2, 0))
	a.verifySteps(t, s)
	commit(t, s, f, a.ahead(1, 0), a.turn(step{sends: 1, state: "one"}))
	a.verifySteps(t, s)
	for i := range 14 {
		commit(t, s, f, a.turns(1, step{steps: i % 3, sends: i % 2})...)
		a.verifySteps(t, s)
		commit(t, s, f, a.ahead(3, 10))
		a.verifySteps(t, s)
	}
	commit(t, s, f, a.turns(700, step{steps: 1, sends: 1, sendSize: 30})...)
	a.verifySteps(t, s)
	a.checkSettled(t, s, a.ids[:40], true)
	a.checkSettled(t, s, a.ids[len(a.ids)-40:], true)
}

// verifySteps is verify for a neuron whose row may be there before its first turn.
func (a *actor) verifySteps(t *testing.T, s neuron.Store) {
	t.Helper()
	if len(a.in) > 0 {
		a.verify(t, s)
		return
	}
	n, err := s.Neuron(t.Context(), a.id)
	if err != nil || n.Key != a.key || n.InSeq != 0 || n.OutSeq != a.now.OutSeq || !sameTallies(n.Tallies.Out, a.now.Tallies.Out) {
		t.Fatalf("%+v, %v, want %+v", n, err, a.now)
	}
	p, err := s.Entries(t.Context(), a.id, neuron.Out, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	a.checkPage(t, neuron.Out, 0, 100, p)
}

// testTallies: compaction lowers neither tallies nor sequences.
func testTallies(t *testing.T, e Engine) {
	// N-13
	s := open(t, e)
	f := claim(t, e, s)
	a := newActor("a", 1)
	commit(t, s, f, a.turns(1500, step{sends: 1})...)
	n, err := s.Neuron(t.Context(), a.id)
	if err != nil {
		t.Fatal(err)
	}
	a.checkRow(t, n)
	var sum uint64
	for _, v := range n.Tallies.In {
		sum += v
	}
	if sum != 1500 || n.InSeq != 1500 {
		t.Errorf("tallies add up to %d, sequence %d, want 1500", sum, n.InSeq)
	}
}

// testWindowByEntries: the mark moves with the commit that passes the bound, not with the next checkpoint.
func testWindowByEntries(t *testing.T, e Engine) {
	// N-14
	s := open(t, e)
	f := claim(t, e, s)
	a := newActor("a", 1)
	limit := neuron.DefaultLimits().JournalEntries
	commit(t, s, f, a.turns(limit, step{sends: 1})...)
	for want := uint64(1); want <= 3; want++ {
		for _, feed := range []neuron.Feed{neuron.In, neuron.Out} {
			p, err := s.Entries(t.Context(), a.id, feed, 0, 1)
			if err != nil || p.First != want {
				t.Fatalf("feed %d after %d turns: first %d, want %d, %v", feed, len(a.in), p.First, want, err)
			}
		}
		commit(t, s, f, a.turn(step{sends: 1}))
	}
	for range 6 {
		commit(t, s, f, a.turns(100, step{sends: 1})...)
		a.verify(t, s)
	}
}

func testWindowByBytes(t *testing.T, e Engine) {
	// N-14
	s := open(t, e)
	f := claim(t, e, s)
	a := newActor("a", 1)
	for i := range 130 {
		commit(t, s, f, a.turn(step{payload: 1000 + 450*i, sends: i % 2, sendSize: 60_000}))
		if i%30 == 29 {
			a.verify(t, s)
		}
	}
	commit(t, s, f, a.turns(600, step{})...) // small ones push the large ones out by number
	a.verify(t, s)
	p, err := s.Entries(t.Context(), a.id, neuron.In, 0, 1)
	if err != nil || p.Last-p.First+1 != uint64(neuron.DefaultLimits().JournalEntries) {
		t.Errorf("after small entries the window is %d…%d, %v", p.First, p.Last, err)
	}
}

// testWindowWithinTurn: one turn sends more than the window holds.
func testWindowWithinTurn(t *testing.T, e Engine) {
	// N-14
	s := open(t, e)
	f := claim(t, e, s)
	a := newActor("a", 1)
	commit(t, s, f, a.turn(step{sends: 600}))
	a.verify(t, s)
	p, err := s.Entries(t.Context(), a.id, neuron.Out, 0, 1)
	if err != nil || p.First != 89 {
		t.Fatalf("first %d, want 89, %v", p.First, err)
	}
	commit(t, s, f, a.turn(step{sends: 14, sendSize: 60_000}))
	a.verify(t, s)
	commit(t, s, f, a.turns(130, step{sends: 7, sendSize: 100})...)
	a.verify(t, s)
}

// testSparseOut: few outgoing entries outlive the incoming ones of their turns.
func testSparseOut(t *testing.T, e Engine) {
	// N-14
	s := open(t, e)
	f := claim(t, e, s)
	a := newActor("a", 1)
	for i := range 3000 {
		st := step{}
		if i%100 == 7 {
			st.sends = 2
		}
		commit(t, s, f, a.turn(st))
		if i%700 == 699 {
			a.verify(t, s)
		}
	}
	p, err := s.Entries(t.Context(), a.id, neuron.Out, 0, 100)
	if err != nil || p.First != 1 || len(p.Entries) != 60 {
		t.Errorf("out: first %d, %d entries, %v", p.First, len(p.Entries), err)
	}
}

// testReset: a reader that fell behind is told so once, and then reads on without a gap.
func testReset(t *testing.T, e Engine) {
	// N-15
	s := open(t, e)
	f := claim(t, e, s)
	a := newActor("a", 1)
	commit(t, s, f, a.turns(100, step{sends: 1})...)
	var after uint64
	read := func(limit int, reset bool) neuron.Page {
		t.Helper()
		p, err := s.Entries(t.Context(), a.id, neuron.In, after, limit)
		if err != nil {
			t.Fatal(err)
		}
		a.checkPage(t, neuron.In, after, limit, p)
		if p.Reset != reset {
			t.Fatalf("after %d: reset %v, want %v", after, p.Reset, reset)
		}
		if n := len(p.Seqs); n > 0 {
			after = p.Seqs[n-1]
		}
		return p
	}
	read(40, false)
	commit(t, s, f, a.turns(900, step{sends: 1})...)
	if p := read(200, true); p.First != 489 || p.Seqs[0] != 489 || p.Last != 1000 {
		t.Fatalf("reset to %d, entries from %d, last %d", p.First, p.Seqs[0], p.Last)
	}
	read(200, false)
	read(200, false)
	if after != 1000 {
		t.Fatalf("read up to %d, want 1000", after)
	}
	if p := read(200, false); len(p.Entries) != 0 {
		t.Fatalf("%d entries past the end", len(p.Entries))
	}
	after = 487 // the entry that went last
	read(1, true)
	after = 488 // the first kept one is next
	read(1, false)
	if p, err := s.Entries(t.Context(), a.id, neuron.In, 600, 0); err != nil || len(p.Entries) != 0 || p.First != 489 {
		t.Errorf("limit 0: %d entries, first %d, %v", len(p.Entries), p.First, err)
	}
}
