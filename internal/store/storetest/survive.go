package storetest

import (
	"errors"
	"testing"

	"soma/internal/neuron"
)

// life is a store with something of everything in it.
func life(t *testing.T, e Engine, s neuron.Store) (neuron.Fence, []*actor) {
	t.Helper()
	f := claim(t, e, s)
	a, b := newActor("a", 1), newActor("b", 2)
	commit(t, s, f, a.turns(600, step{sends: 1, sendSize: 50})...)
	commit(t, s, f, a.ahead(1, 50)) // of a turn that never ended
	for i := range 30 {
		r := b.turn(step{state: string(rune('a' + i))})
		r.Outbox, r.Started, r.Dead = []neuron.OutboxRow{outboxRow(a.id)}, []neuron.Execution{execution(b.id)}, []neuron.DeadLetter{deadLetter(a.id)}
		commit(t, s, f, r)
	}
	return f, []*actor{a, b}
}

func checkLife(t *testing.T, e Engine, s neuron.Store, old neuron.Fence, actors []*actor) {
	t.Helper()
	for _, a := range actors {
		a.verify(t, s)
		a.checkSettled(t, s, a.ids[:20], true)
		a.checkSettled(t, s, a.ids[len(a.ids)-20:], true)
	}
	wantLists(t, s, 30, 30, 30)
	f := claim(t, e, s)
	if f.Epoch <= old.Epoch {
		t.Fatalf("epoch %d after %d", f.Epoch, old.Epoch)
	}
	again := actors[0].copy()
	if err := s.Commit(t.Context(), old, []*neuron.Record{again.turn(step{})}); !errors.Is(err, neuron.ErrFenced) {
		t.Fatalf("commit under the old epoch: %v", err)
	}
	again = actors[0].copy()
	last := again.ids[0]
	wantRecordError(t, s.Commit(t.Context(), f, []*neuron.Record{again.turn(step{id: again.ids[len(again.ids)-1]})}), 0, neuron.ErrDuplicate)
	again = actors[0].copy()
	commit(t, s, f, again.turns(100, step{})...)
	again.verify(t, s)
	again.checkSettled(t, s, again.ids[:20], true)
	if last != again.ids[0] {
		t.Fatal("the suite lost an id")
	}
}

// testReopen: all that was committed is there after a close.
func testReopen(t *testing.T, e Engine) {
	// N-33
	s := e.Open(t, Sequences())
	f, actors := life(t, e, s)
	s = e.Reopen(t, s)
	defer closeStore(t, s)
	checkLife(t, e, s, f, actors)
}

// testCrash: all that was committed is there after a kill, at any moment between two commits.
func testCrash(t *testing.T, e Engine) {
	// N-33
	s := open(t, e)
	f, actors := life(t, e, s)
	for range 3 {
		after := e.Crash(t, s)
		checkLife(t, e, after, f, actors)
		closeStore(t, after)
		commit(t, s, f, actors[0].turns(90, step{sends: 1, payload: 3000})...)
	}
}

// testNumbersAfterReopen: counters go on from their rows.
func testNumbersAfterReopen(t *testing.T, e Engine) {
	// M-04
	s := e.Open(t, Sequences())
	f := claim(t, e, s)
	a := newActor("a", 1)
	commit(t, s, f, a.ops(addSeries{"x"}, &addRow{series: "x", body: "1"}, &addRow{series: "x", body: "2"},
		&countRow{addRow{series: "y", body: "1"}}))
	pos := a.ops()
	commit(t, s, f, pos)
	s = e.Reopen(t, s)
	defer closeStore(t, s)
	f = claim(t, e, s)
	r := a.ops(&addRow{series: "x", body: "3"}, &countRow{addRow{series: "y", body: "2"}})
	commit(t, s, f, r)
	wantRows(t, s, "x1 1", "x2 2", "x3 3", "y1 1", "y2 2")
	if e.Take == nil && r.Turn.Pos <= pos.Turn.Pos {
		t.Errorf("position %d after %d", r.Turn.Pos, pos.Turn.Pos)
	}
}

func closeStore(t *testing.T, s neuron.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}
