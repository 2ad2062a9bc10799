package storetest

import (
	"errors"
	"slices"
	"strconv"
	"testing"

	"soma/ident"
	"soma/internal/neuron"
)

// actorAt returns an actor whose neuron has a place of the set.
func actorAt(in neuron.PlaceSet, key int64) *actor {
	for n := 0; ; n++ {
		a := newActor("at"+strconv.FormatInt(key, 10)+"-"+strconv.Itoa(n), key)
		if in.Has(a.place()) {
			return a
		}
	}
}

func (a *actor) place() neuron.Place { return neuron.PlaceOf(a.id.String()) }

// testPlaces: a node commits at the places that it holds and nowhere else; one that lost a place loses the whole group.
func testPlaces(t *testing.T, e Engine) {
	// N-35, N-36, N-07
	s := open(t, e)
	var low, high neuron.PlaceSet
	for p := range neuron.AllPlaces().All() {
		if p < 100 {
			low.Add(p)
		} else {
			high.Add(p)
		}
	}
	one, two := claimAs(t, e, s, "one", low), claimAs(t, e, s, "two", high)
	if one.Places.Held() != low || two.Places.Held() != high {
		t.Fatalf("%d and %d places", one.Places.Held().Len(), two.Places.Held().Len())
	}
	a, b := actorAt(low, 1), actorAt(high, 2)
	commit(t, s, one, a.turn(step{}))
	commit(t, s, two, b.turn(step{}))
	refused := func(f neuron.Fence, group ...*neuron.Record) {
		t.Helper()
		if err := s.Commit(t.Context(), f, group); !errors.Is(err, neuron.ErrFenced) {
			t.Fatalf("commit: %v, want it fenced", err)
		}
		a.verify(t, s)
		b.verify(t, s)
	}
	refused(one, a.copy().turn(step{}), b.copy().turn(step{}))
	made := *one.Places
	made[b.place()] = two.Places[b.place()]
	refused(neuron.Fence{Node: "one", Epoch: one.Epoch, Places: &made}, b.copy().turn(step{}))

	// One place goes over; the rest of its holder is as it was.
	moved := e.Take(t, s, two, neuron.PlacesOf(a.place()))
	if moved.Places[a.place()] <= one.Places[a.place()] || moved.Places.Held().Len() != high.Len()+1 || moved.Epoch != two.Epoch {
		t.Fatalf("epoch %d after %d, %d places", moved.Places[a.place()], one.Places[a.place()], moved.Places.Held().Len())
	}
	low.Remove(a.place())
	c := actorAt(low, 3)
	refused(one, c.copy().turn(step{}), a.copy().turn(step{}))
	refused(two, a.copy().turn(step{}))
	commit(t, s, one, c.turn(step{}))
	commit(t, s, moved, a.turn(step{}), b.turn(step{}))
	a.verify(t, s)
	b.verify(t, s)
	c.verify(t, s)

	// Back again: the epoch under which it was held before is of no use.
	back := e.Take(t, s, one, neuron.PlacesOf(a.place()))
	refused(one, a.copy().turn(step{}))
	refused(moved, a.copy().turn(step{}))
	commit(t, s, back, a.turn(step{}))
	a.verify(t, s)
}

// testKeys: keys are given once, whichever life asks for them.
func testKeys(t *testing.T, e Engine) {
	// N-35
	s := open(t, e)
	var used []int64
	for i := range 5 {
		f := claim(t, e, s)
		first, last, err := s.ReserveKeys(t.Context())
		if err != nil || first < 1 || last < first || slices.Contains(used, first) {
			t.Fatalf("keys %d to %d after %v, %v", first, last, used, err)
		}
		used = append(used, first)
		commit(t, s, f, newActor(strconv.Itoa(i), first).turn(step{}))
	}
}

// testOutboxOfPlaces: rows are read by place, page by page, and by their ids.
func testOutboxOfPlaces(t *testing.T, e Engine) {
	// N-35
	s := open(t, e)
	f := claim(t, e, s)
	r := newActor("a", 1).turn(step{})
	in := neuron.PlacesOf(0, 63, 64, 255)
	var mine, other []neuron.OutboxRow
	for i := range 40 {
		o := outboxRow(neuron.ID{Owner: "me", Kind: "suite", Key: "to"})
		if o.Place = neuron.Place(i * 7); i%4 == 0 {
			o.Place = []neuron.Place{0, 63, 64, 255}[i/4%4]
		}
		if r.Outbox = append(r.Outbox, o); in.Has(o.Place) {
			mine = append(mine, o)
		} else {
			other = append(other, o)
		}
	}
	commit(t, s, f, r)
	var got []neuron.OutboxRow
	var after ident.ID
	for {
		page, err := s.Outbox(t.Context(), in, after, 3)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, page...)
		if len(page) < 3 {
			break
		}
		after = page[2].ID
	}
	if err := same(got, mine); err != nil {
		t.Fatal(err)
	}
	if rows, err := s.Outbox(t.Context(), neuron.PlaceSet{}, ident.ID{}, 10); err != nil || len(rows) != 0 {
		t.Fatalf("no places have %d rows, %v", len(rows), err)
	}
	rows, err := s.OutboxRows(t.Context(), []ident.ID{other[0].ID, ident.New(at), mine[1].ID, mine[0].ID})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(rows, func(a, b neuron.OutboxRow) int { return slices.Compare(a.ID[:], b.ID[:]) })
	want := []neuron.OutboxRow{other[0], mine[1], mine[0]}
	slices.SortFunc(want, func(a, b neuron.OutboxRow) int { return slices.Compare(a.ID[:], b.ID[:]) })
	if err := same(rows, want); err != nil {
		t.Fatal(err)
	}
	if rows, err := s.OutboxRows(t.Context(), nil); err != nil || len(rows) != 0 {
		t.Fatalf("no ids have %d rows, %v", len(rows), err)
	}
}

func testExecutionsOfPlaces(t *testing.T, e Engine) {
	// N-35
	s := open(t, e)
	f := claim(t, e, s)
	low := neuron.PlaceSet{^uint64(0)}
	a, b := actorAt(low, 1), actorAt(neuron.PlaceSet{0, ^uint64(0)}, 2)
	var mine []neuron.Execution
	ra, rb := a.turn(step{}), b.turn(step{})
	for range 5 {
		x := execution(a.id)
		mine = append(mine, x)
		ra.Started, rb.Started = append(ra.Started, x), append(rb.Started, execution(b.id))
	}
	commit(t, s, f, ra, rb)
	got, err := s.Executions(t.Context(), low, ident.ID{}, 100)
	if err != nil {
		t.Fatal(err)
	}
	if err := same(got, mine); err != nil {
		t.Fatal(err)
	}
	if got, err = s.Executions(t.Context(), low, mine[1].ID, 2); err != nil {
		t.Fatal(err)
	}
	if err := same(got, mine[2:4]); err != nil {
		t.Fatal(err)
	}
}

// changeShared is changeRows on a row that others change at the same time.
type changeShared struct {
	changeRows
	key string
}

func (o changeShared) LockKey() string { return o.key }

// sweepShared is a shared op without a guard.
type sweepShared struct{ series, body string }

func (sweepShared) SQL() string       { return "delete from suite_row where series = ? and body = ?" }
func (o sweepShared) Args() []any     { return []any{o.series, o.body} }
func (o sweepShared) LockKey() string { return o.series }

// testShared: shared ops of all records run first, in order of their keys, and each record answers for its own.
func testShared(t *testing.T, e Engine) {
	// N-35
	s := open(t, e)
	f := claim(t, e, s)
	a, b := newActor("a", 1), newActor("b", 2)
	commit(t, s, f, a.ops(addSeries{"x"}, &addRow{series: "x", body: "1"}))
	commit(t, s, f, a.ops(changeRows{"x", "4", "5"}, changeShared{changeRows{"x", "3", "4"}, "3"}),
		b.ops(changeShared{changeRows{"x", "2", "3"}, "2"}), b.ops(changeShared{changeRows{"x", "1", "2"}, "1"}))
	wantRows(t, s, "x1 5")
	lost, other := a.copy(), b.copy()
	err := s.Commit(t.Context(), f, []*neuron.Record{other.ops(changeShared{changeRows{"x", "5", "6"}, "1"}), lost.ops(),
		lost.ops(&addRow{series: "x", body: "new"}, changeShared{changeRows{"x", "new", "found"}, "2"})})
	wantRecordError(t, err, 2, errGuard)
	wantRows(t, s, "x1 5")
	commit(t, s, f, a.ops(sweepShared{"x", "none"}), b.ops(sweepShared{"x", "5"})) // unguarded: any number of rows
	wantRows(t, s)
	a.verify(t, s)
	b.verify(t, s)
}
