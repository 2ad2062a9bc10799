package engine

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"soma/internal/neuron"
	"soma/internal/neuron/neurontest"
)

type text struct {
	Text string `json:"text"`
}

// N-17: rows beyond what memory may hold are read again when their turn comes, in the order of their lane, also after a
// restart; alarms ahead of their time do not crowd out what is due.
func TestRowsBeyondMemory(t *testing.T) {
	sent, start := neuron.NewType[text]("test.sent.v1"), neuron.NewType[text]("test.start.v1")
	store := neurontest.New(neuron.DefaultLimits())
	var mu sync.Mutex
	var got []string
	broken := true
	k := neuron.NewKind("test")
	neuron.Handle(k, start, func(turn *neuron.Turn, _ text) error {
		for i := range 5 {
			if _, err := neuron.After(turn, time.Duration(i+1)*time.Hour, sent, text{"alarm"}); err != nil {
				return err
			}
		}
		for i := range 50 {
			if err := neuron.Send(turn, neuron.ID{Owner: "me", Kind: "test", Key: "sink"}, sent, text{fmt.Sprint(i)}); err != nil {
				return err
			}
		}
		return nil
	})
	neuron.Handle(k, sent, func(_ *neuron.Turn, m text) error {
		mu.Lock()
		defer mu.Unlock()
		if broken && len(got) == 20 {
			return fmt.Errorf("not yet")
		}
		got = append(got, m.Text)
		return nil
	})
	open := func() *Engine {
		e, err := New(Options{Store: store, Kinds: []*neuron.Kind{k}, Types: []string{sent.Alias(), start.Alias()}, Limits: neuron.Limits{BackoffMin: time.Millisecond, BackoffMax: time.Millisecond}})
		if err != nil {
			t.Fatal(err)
		}
		e.drain.maxRows = 3
		if err := e.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		return e
	}
	shut := func(e *Engine) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := e.Stop(ctx); err != nil {
			t.Error(err)
		}
		if e.drain.kept > 3 || e.drain.kept < 0 || e.drain.bytes < 0 {
			t.Errorf("%d rows of %d bytes in memory", e.drain.kept, e.drain.bytes)
		}
	}
	e := open()
	if err := Fire(t.Context(), e, neuron.ID{Owner: "me", Kind: "test", Key: "a"}, start, text{}); err != nil {
		t.Fatal(err)
	}
	for {
		rows, err := store.Outbox(t.Context(), neuron.AllPlaces(), [16]byte{}, 100)
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(rows, func(r neuron.OutboxRow) bool { return r.Attempts > 3 }) {
			break
		}
	}
	shut(e)
	mu.Lock()
	broken = false
	mu.Unlock()
	e = open()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := e.Quiet(ctx); err != nil {
		t.Fatalf("%v: %+v", err, e.Stats())
	}
	for i, s := range got {
		if s != fmt.Sprint(i) {
			t.Fatalf("order %v", got)
		}
	}
	if s := e.Stats(); len(got) != 50 || s.Dormant != 5 || s.Outbox != 5 {
		t.Errorf("%d handled, %+v", len(got), s)
	}
	shut(e)
}
