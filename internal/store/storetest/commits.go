package storetest

import (
	"errors"
	"slices"
	"testing"

	"soma/ident"
	"soma/internal/neuron"
)

func testEpoch(t *testing.T, e Engine) {
	// N-35
	s := open(t, e)
	var last uint64
	for range 3 {
		f := claim(t, e, s)
		if f.Epoch <= last || f.Node != "node" || f.Places.Held() != neuron.AllPlaces() {
			t.Fatalf("fence %+v after epoch %d", f, last)
		}
		last = f.Epoch
	}
}

// testFence: a group under an old epoch is refused whole, and the holder goes on.
func testFence(t *testing.T, e Engine) {
	// N-35
	s := open(t, e)
	old := claim(t, e, s)
	a, b := newActor("a", 1), newActor("b", 2)
	commit(t, s, old, a.turn(step{}))
	if e.Take != nil { // a new life ends the old one before it takes anything
		claimAs(t, e, s, "node", neuron.PlaceSet{})
		if err := s.Commit(t.Context(), old, []*neuron.Record{a.copy().turn(step{})}); !errors.Is(err, neuron.ErrFenced) {
			t.Fatalf("commit of an old life: %v", err)
		}
	}
	now := claim(t, e, s)
	for _, f := range []neuron.Fence{old, {Node: "stranger", Epoch: now.Epoch, Places: now.Places}, {Node: now.Node, Epoch: now.Epoch + 1, Places: now.Places}} {
		lost := a.copy()
		group := []*neuron.Record{b.turn(step{sends: 1}), lost.turn(step{})}
		if err := s.Commit(t.Context(), f, group); !errors.Is(err, neuron.ErrFenced) {
			t.Fatalf("commit under %+v: %v", f, err)
		}
		b = newActor("b", 2)
		a.verify(t, s)
		b.verify(t, s)
	}
	commit(t, s, now, a.turn(step{}), b.turn(step{}))
	a.verify(t, s)
	b.verify(t, s)
}

func testDedupe(t *testing.T, e Engine) {
	// N-20
	s := open(t, e)
	f := claim(t, e, s)
	a, b := newActor("a", 1), newActor("b", 2)
	commit(t, s, f, a.turns(10, step{})...)
	commit(t, s, f, b.turn(step{}))
	a.checkSettled(t, s, a.ids, true)
	a.checkSettled(t, s, []ident.ID{ident.New(at), b.ids[0]}, false)
	again := a.copy()
	wantRecordError(t, s.Commit(t.Context(), f, []*neuron.Record{again.turn(step{id: a.ids[3]})}), 0, neuron.ErrDuplicate)
	a.verify(t, s)
}

func (a *actor) checkSettled(t *testing.T, s neuron.Store, ids []ident.ID, want bool) {
	t.Helper()
	for i, id := range ids {
		got, err := s.Settled(t.Context(), a.key, id)
		if err != nil || got != want {
			t.Fatalf("delivery %d of %d settled: %v, %v, want %v", i, len(ids), got, err, want)
		}
	}
}

// testDedupeWindow: ids outlive the turn rows that held them, for the whole window at least.
func testDedupeWindow(t *testing.T, e Engine) {
	// N-20
	s := open(t, e)
	f := claim(t, e, s)
	a := newActor("a", 1)
	window := neuron.DefaultLimits().DedupeWindow
	for range 20 {
		commit(t, s, f, a.turns(500, step{})...)
	}
	newest := a.ids[len(a.ids)-window:]
	var some []ident.ID
	for i := 0; i < window; i += 61 {
		some = append(some, newest[i])
	}
	a.checkSettled(t, s, append(some, newest[0], newest[window-1]), true)
	w, ok := s.(neuron.Window)
	if !ok {
		return
	}
	var listed []ident.ID
	if err := w.SettledIDs(t.Context(), a.key, func(id ident.ID) { listed = append(listed, id) }); err != nil {
		t.Fatal(err)
	}
	if len(listed) < window || !slices.Equal(listed[len(listed)-window:], newest) {
		t.Errorf("%d ids are listed, and the last are not those of the window", len(listed))
	}
}

// testDuplicateInGroup: the repeat is named, nothing of the group is applied, and the rest goes through alone.
func testDuplicateInGroup(t *testing.T, e Engine) {
	// N-34
	s := open(t, e)
	f := claim(t, e, s)
	a, b := newActor("a", 1), newActor("b", 2)
	id := ident.New(at)
	group := []*neuron.Record{a.turn(step{}), b.turn(step{id: id}), b.turn(step{id: id}), a.turn(step{})}
	wantRecordError(t, s.Commit(t.Context(), f, group), 2, neuron.ErrDuplicate)
	newActor("a", 1).verify(t, s)
	newActor("b", 2).verify(t, s)
	commit(t, s, f, group[0], group[1], group[3])
	a.verify(t, s)
}

// testGroupIsAtomic: whatever a record writes goes with it, whichever record of the group fails.
func testGroupIsAtomic(t *testing.T, e Engine) {
	// N-34
	s := open(t, e)
	f := claim(t, e, s)
	done := newActor("done", 1)
	commit(t, s, f, done.turn(step{}))
	for bad := range 3 {
		a := newActor("a", 2)
		var group []*neuron.Record
		for i := range 3 {
			r := a.turn(step{sends: 1, state: "x"})
			r.Outbox = []neuron.OutboxRow{outboxRow(done.id)}
			r.Started = []neuron.Execution{execution(a.id)}
			r.Dead = []neuron.DeadLetter{deadLetter(a.id)}
			if i == bad {
				r.Turn.DeliveryID = done.ids[0]
			}
			group = append(group, r)
		}
		wantRecordError(t, s.Commit(t.Context(), f, group), bad, neuron.ErrDuplicate)
		newActor("a", 2).verify(t, s)
		wantLists(t, s, 0, 0, 0)
	}
	a := newActor("a", 2)
	r := a.turn(step{sends: 1})
	r.Outbox, r.Started, r.Dead = []neuron.OutboxRow{outboxRow(done.id)}, []neuron.Execution{execution(a.id)}, []neuron.DeadLetter{deadLetter(a.id)}
	commit(t, s, f, r, done.turn(step{}))
	a.verify(t, s)
	done.verify(t, s)
	wantLists(t, s, 1, 1, 1)
}

// testCancelled: a context that has ended keeps a group from being applied.
func testCancelled(t *testing.T, e Engine) {
	s := open(t, e)
	f := claim(t, e, s)
	ctx, cancel := contextOf(t)
	cancel()
	a := newActor("a", 1)
	if err := s.Commit(ctx, f, []*neuron.Record{a.turn(step{})}); err == nil {
		t.Error("a commit under an ended context went through")
	}
	newActor("a", 1).verify(t, s)
}

func wantRecordError(t *testing.T, err error, index int, reason error) {
	t.Helper()
	var r *neuron.RecordError
	if !errors.As(err, &r) || r.Index != index || reason != nil && !errors.Is(err, reason) {
		t.Fatalf("commit: %v, want record %d and %v", err, index, reason)
	}
}

func wantLists(t *testing.T, s neuron.Store, outbox, executions, dead int) {
	t.Helper()
	o, err := s.Outbox(t.Context(), neuron.AllPlaces(), ident.ID{}, 100)
	if err != nil || len(o) != outbox {
		t.Fatalf("outbox: %d rows, want %d, %v", len(o), outbox, err)
	}
	x, err := s.Executions(t.Context(), neuron.AllPlaces(), ident.ID{}, 100)
	if err != nil || len(x) != executions {
		t.Fatalf("executions: %d rows, want %d, %v", len(x), executions, err)
	}
	d, err := s.DeadLetters(t.Context(), ident.ID{}, 100)
	if err != nil || len(d) != dead {
		t.Fatalf("dead letters: %d rows, want %d, %v", len(d), dead, err)
	}
}
