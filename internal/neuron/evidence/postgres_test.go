package evidence_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"soma/internal/neuron"
	"soma/internal/neuron/engine"
	"soma/internal/neuron/evidence"
	"soma/internal/store/postgres"
	"soma/internal/store/postgres/postgrestest"
	"soma/wire"
)

// N-15, N-18, N-41: on PostgreSQL too a journal says where it begins, a delivery that nobody handles is a fact of its sender and
// a dead letter, which is re-driven once there is a handler, and the trace tells all of it.
func TestEvidenceOnPostgreSQL(t *testing.T) {
	dsn := postgrestest.Database(t)
	limits := neuron.DefaultLimits()
	limits.JournalEntries, limits.CheckpointTurn = 16, 8
	sender := func() *neuron.Kind {
		k := neuron.NewKind("test")
		neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error {
			if n.N > 0 {
				return nil
			}
			return neuron.Send(turn, id("sink"), otherType, n)
		})
		return k
	}
	live := func(k *neuron.Kind, do func(*engine.Engine, *evidence.Evidence)) {
		s, err := postgres.Open(t.Context(), dsn, postgres.Options{Limits: limits})
		if err != nil {
			t.Fatal(err)
		}
		e, err := engine.New(engine.Options{
			Store: s, Kinds: []*neuron.Kind{k}, Types: []string{noteType.Alias(), otherType.Alias()}, Limits: limits, Generation: "g",
		})
		if err == nil {
			err = e.Start(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Second)
			defer cancel()
			if err := errors.Join(e.Stop(ctx), s.Close()); err != nil {
				t.Error(err)
			}
		}()
		taken, err := s.Take(t.Context(), e.Fence(), neuron.AllPlaces())
		if err == nil {
			err = e.Gain(t.Context(), taken)
		}
		if err != nil {
			t.Fatal(err)
		}
		do(e, evidence.New(evidence.Options{Engine: e, Reader: s, Domain: &domain{}, Generation: "g"}))
	}
	quiet := func(e *engine.Engine) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := e.Quiet(ctx); err != nil {
			t.Fatal(err)
		}
	}
	send := func(e *engine.Engine, to neuron.ID, n int) neuron.Delivery {
		t.Helper()
		d, err := noteType.New(to, note{n}, time.Now())
		if err == nil {
			err = e.Deliver(t.Context(), d)
		}
		if err != nil {
			t.Fatal(err)
		}
		return d
	}

	var first neuron.Delivery
	live(sender(), func(e *engine.Engine, ev *evidence.Evidence) {
		first = send(e, id("a"), 0)
		for n := range 40 {
			send(e, id("many"), n+1)
		}
		quiet(e)
		j, err := ev.Journal(t.Context(), "me/test/many", wire.FeedIn, 0, 100)
		if err != nil || !j.Reset || j.Last != 40 || j.First < 10 || len(j.Entries) != 16 || j.Tallies[noteType.Alias()] != 40 {
			t.Errorf("%+v, %v", j, err)
		}
		out, err := ev.Journal(t.Context(), "me/test/a", wire.FeedOut, 0, 10)
		if err != nil || out.Reset || out.Last != 2 || out.Entries[1].Ended == nil || out.Entries[1].Ended.Code != "no_handler" {
			t.Errorf("the sender's facts: %+v, %v", out, err)
		}
	})

	got := 0
	upgraded := sender()
	neuron.Handle(upgraded, otherType, func(*neuron.Turn, note) error { got++; return nil })
	live(upgraded, func(e *engine.Engine, ev *evidence.Evidence) {
		letters, err := ev.DeadLetters(t.Context(), "", 10)
		if err != nil || len(letters) != 1 || letters[0].Correlation != first.ID.String() {
			t.Fatalf("%+v, %v", letters, err)
		}
		if _, err := ev.Redrive(t.Context(), letters[0].ID); err != nil {
			t.Fatal(err)
		}
		quiet(e)
		if left, err := ev.DeadLetters(t.Context(), "", 10); err != nil || len(left) != 0 || got != 1 {
			t.Errorf("%+v are left, %v, handled %d times", left, err, got)
		}
		trace, err := ev.Trace(t.Context(), first.ID.String())
		states := map[string]int{}
		for _, n := range trace.Nodes {
			if n.Kind == wire.NodeDelivery {
				states[n.What+" "+n.State]++
			}
		}
		if err != nil || states[noteType.Alias()+" handled"] != 1 || states[otherType.Alias()+" refused"] != 1 || states[otherType.Alias()+" handled"] != 1 {
			t.Errorf("the trace tells %v, %v", states, err)
		}
	})
}
