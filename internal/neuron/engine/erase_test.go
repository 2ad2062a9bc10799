package engine_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"soma/internal/neuron"
	"soma/internal/neuron/engine"
)

// S-62: what is stored of a neuron goes in bounded commits; one for which something waits is refused; afterwards it is one that never
// was, at once and after a restart, and others are as they were.
func TestErase(t *testing.T) {
	b := onDisk(t)
	k := neuron.NewKind("test")
	hold := make(chan struct{})
	neuron.Handle(k, noteType, func(t *neuron.Turn, m note) error {
		switch m.Text {
		case "alarm":
			_, err := neuron.After(t, time.Hour, otherType, note{})
			return err
		case "hold":
			<-hold
		}
		n, err := neuron.State(t, sumType, nil)
		if err != nil {
			return err
		}
		return neuron.SetState(t, sumType, n+1)
	})
	neuron.Handle(k, otherType, func(*neuron.Turn, note) error { return nil })
	o := engine.Options{Kinds: []*neuron.Kind{k}}
	e := start(t, b, o)
	rows := func() string {
		t.Helper()
		text := ""
		err := b.store.Query(t.Context(), `select (select count(*) from neuron), (select count(*) from turn), (select count(*) from seen)`, nil,
			func(scan func(...any) error) error {
				var n, turns, seen int
				err := scan(&n, &turns, &seen)
				text = fmt.Sprint(n, turns, seen)
				return err
			})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	deliver(t, e, fresh(t, id("other"), "x"))
	before := rows()
	first := fresh(t, id("a"), "x")
	deliver(t, e, first)
	for range 399 {
		deliver(t, e, fresh(t, id("a"), "x"))
	}
	calls := 0
	for more := true; more; calls++ {
		var err error
		if more, err = e.Erase(t.Context(), id("a")); err != nil {
			t.Fatal(err)
		}
	}
	if calls != 2 || rows() != before {
		t.Errorf("%d commits, rows %s, want 2 and %s", calls, rows(), before)
	}
	if more, err := e.Erase(t.Context(), id("never")); more || err != nil {
		t.Errorf("one that never was: %v, %v", more, err)
	}
	deliver(t, e, first) // also what was settled is forgotten
	if p := page(t, e, id("a"), neuron.In); p.Last != 1 || len(p.Entries) != 1 {
		t.Errorf("afterwards it begins with %+v", p)
	}
	stop(t, e)
	b.reopen(t)
	e = start(t, b, o)
	if p := page(t, e, id("a"), neuron.In); p.Last != 1 {
		t.Errorf("after a restart: %+v", p)
	}
	deliver(t, e, fresh(t, id("a"), "alarm"))
	if _, err := e.Erase(t.Context(), id("a")); !errors.Is(err, neuron.ErrBusy) {
		t.Errorf("with an alarm: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- e.Deliver(t.Context(), fresh(t, id("b"), "hold")) }()
	for { // it runs once it is refused; before that there is nothing of it
		if _, err := e.Erase(t.Context(), id("b")); errors.Is(err, neuron.ErrBusy) {
			break
		}
	}
	close(hold)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if p := page(t, e, id("other"), neuron.In); p.Last != 1 {
		t.Errorf("another neuron: %+v", p)
	}
}
