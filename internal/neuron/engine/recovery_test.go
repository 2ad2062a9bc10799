package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/engine"
)

// N-10: a cancel that waits in the outbox when the daemon starts reaches every execution that is recovered.
func TestCancelRightAfterAStart(t *testing.T) {
	const n = 4000
	b := fake()
	k := neuron.NewKind("test")
	var seen atomic.Int64
	var ids []ident.ID
	neuron.Handle(k, noteType, func(turn *neuron.Turn, _ note) error {
		for range n {
			ids = append(ids, turn.Start(neuron.Execution{Kind: "work", Policy: neuron.Attach, Then: endType.Alias()}).ID)
		}
		return nil
	})
	neuron.Handle(k, otherType, func(turn *neuron.Turn, _ note) error {
		for _, x := range ids {
			turn.CancelExecution(x)
		}
		return nil
	})
	neuron.Handle(k, endType, func(*neuron.Turn, neuron.Ended) error { seen.Add(1); return nil })
	wait := func(ctx context.Context) (json.RawMessage, error) { <-ctx.Done(); return nil, context.Cause(ctx) }
	o := engine.Options{Kinds: []*neuron.Kind{k}, Adapters: map[string]neuron.Adapter{"work": adapter{
		run: func(ctx context.Context, _ neuron.Execution) (json.RawMessage, error) { return wait(ctx) },
		recover: func(ctx context.Context, _ neuron.Execution) (json.RawMessage, bool, error) {
			v, err := wait(ctx)
			return v, true, err
		},
	}}}
	e := start(t, b, o)
	deliver(t, e, fresh(t, id("a"), ""))
	stop(t, e)
	fence, err := b.store.Claim(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	d := fresh(t, id("a"), "")
	d.Alias = otherType.Alias()
	row := neuron.OutboxRow{Delivery: d, Due: time.Now(), Attempts: 1}
	if err := b.store.Commit(t.Context(), fence, []*neuron.Record{{Neuron: d.Target, Outbox: []neuron.OutboxRow{row}}}); err != nil {
		t.Fatal(err)
	}
	e = start(t, b, o)
	quiet(t, e)
	if seen.Load() != n {
		t.Errorf("%d outcomes of %d", seen.Load(), n)
	}
}

// An attempt that is not newer than the running one is refused: its outcome would pass for a repeat and never come.
func TestAttemptsOfExecutionsRise(t *testing.T) {
	b := fake()
	k := neuron.NewKind("test")
	var first ident.ID
	neuron.Handle(k, noteType, func(turn *neuron.Turn, _ note) error {
		first = turn.Start(neuron.Execution{ID: first, Kind: "work", Policy: neuron.Once, Then: endType.Alias()}).ID
		return nil
	})
	neuron.Handle(k, endType, func(*neuron.Turn, neuron.Ended) error { return nil })
	gate := make(chan struct{})
	e := start(t, b, engine.Options{Kinds: []*neuron.Kind{k}, Adapters: map[string]neuron.Adapter{"work": adapter{
		run: func(context.Context, neuron.Execution) (json.RawMessage, error) { <-gate; return nil, nil },
	}}})
	deliver(t, e, fresh(t, id("a"), ""))
	var refusal *neuron.Refusal
	if err := e.Deliver(t.Context(), fresh(t, id("a"), "")); !errors.As(err, &refusal) || !strings.Contains(err.Error(), "not newer") {
		t.Errorf("the same attempt: %v", err)
	}
	close(gate)
	quiet(t, e)
}

// N-41: two who re-drive one dead letter send it once.
func TestRedriveOfOneLetterAtOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		k := neuron.NewKind("test")
		e := start(t, b, engine.Options{Kinds: []*neuron.Kind{k}}) // it has no handler
		for round := range int64(20) {
			d := fresh(t, id("a"), "")
			d.Alias = otherType.Alias()
			var refusal *neuron.Refusal
			if err := e.Deliver(t.Context(), d); !errors.As(err, &refusal) {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			var sent, missed atomic.Int64
			for range 4 {
				wg.Go(func() {
					switch _, err := e.Redrive(t.Context(), d.ID); {
					case err == nil:
						sent.Add(1)
					case errors.Is(err, neuron.ErrNoDeadLetter):
						missed.Add(1)
					default:
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if sent.Load() != 1 || missed.Load() != 3 {
				t.Fatalf("round %d: sent %d times, missed %d times", round, sent.Load(), missed.Load())
			}
		}
		quiet(t, e)
	})
}
