package call_test

import (
	"context"
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
	"soma/internal/neuron/neurontest"
)

// node starts an engine that holds the places of the given neurons. What it commits for others is told to hint.
func node(t *testing.T, b *base, name string, hint func([]neuron.Hint), k *neuron.Kind, keys ...string) *world {
	t.Helper()
	e, err := engine.New(engine.Options{Store: b.store, Kinds: []*neuron.Kind{k}, Types: types, Limits: quick(), Node: name, Elsewhere: hint})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	w := &world{Engine: e, t: t, b: b}
	t.Cleanup(w.stop)
	var places neuron.PlaceSet
	for _, key := range keys {
		places.Add(neuron.PlaceOf(id(key).String()))
	}
	if err := e.Gain(t.Context(), b.store.(*neurontest.Store).Take(name, places)); err != nil {
		t.Fatal(err)
	}
	return w
}

func shared() *base {
	s := neurontest.NewShared(neuron.DefaultLimits())
	return &base{store: s, rows: func(testing.TB) map[string]string { return s.Rows() }}
}

// post carries hints from one node to the other.
func post(t *testing.T, ctx context.Context, hints <-chan []neuron.Hint, to func() *world) {
	for {
		select {
		case <-ctx.Done():
			return
		case some := <-hints:
			var ids []ident.ID
			for _, h := range some {
				if ids = append(ids, h.ID); !to().Holding().Has(h.Place) {
					t.Errorf("a hint for place %d, which is elsewhere", h.Place)
				}
			}
			if err := to().Wake(ctx, ids); err != nil && !errors.Is(err, neuron.ErrStopped) && ctx.Err() == nil {
				t.Error(err)
			}
		}
	}
}

// N-27: a call goes from node to node on the hints that wake outbox rows, there and back; without any, the sweep takes the
// request in and the caller looks for its answer itself.
func TestCallsBetweenNodes(t *testing.T) {
	for _, hints := range []bool{true, false} {
		t.Run(fmt.Sprint("hints ", hints), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := shared()
				toB, toA := make(chan []neuron.Hint, 100), make(chan []neuron.Hint, 100)
				k := kind(func(turn *neuron.Turn, n note) error {
					for range 3 {
						got, err := call.Do(turn, echo, id("b"), n)
						if err != nil || got.Text != "back" {
							return fmt.Errorf("%+v, %w", got, err)
						}
					}
					return nil
				})
				call.Serve(k, echo, func(turn *neuron.Turn, n note) (note, error) { return note{Text: "back"}, nil })
				a := node(t, b, "A", func(hints []neuron.Hint) { toB <- hints }, k, "a")
				c := node(t, b, "B", func(hints []neuron.Hint) { toA <- hints }, k, "b")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if hints {
					go post(t, ctx, toB, func() *world { return c })
					go post(t, ctx, toA, func() *world { return a })
				} else {
					go func() {
						for ctx.Err() == nil {
							pass(100 * time.Millisecond)
							if err := c.Sweep(ctx); err != nil && ctx.Err() == nil {
								t.Error(err)
							}
						}
					}()
				}
				began := time.Now()
				if err := a.run(id("a"), "x"); err != nil {
					t.Error(err)
				}
				if d := time.Since(began); hints && d > 100*time.Millisecond || !hints && (d < 3*time.Second || d > 4*time.Second) {
					t.Errorf("three calls took %s", d)
				}
				a.wantFacts(id("a"), "requested", "requested", "requested", "completed", "completed", "completed")
				cancel()
				a.wantClean()
				pass(time.Second) // those who watch the context have seen it
			})
		})
	}
}

// N-31: two trees that meet across nodes, where neither sees the other wait, are found in the rows: after two looks one lets
// its neuron go and comes again, so that both end.
func TestCycleBetweenNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := shared()
		toB, toA := make(chan []neuron.Hint, 100), make(chan []neuron.Hint, 100)
		var seen counter
		k := kind(func(turn *neuron.Turn, n note) error {
			other := strings.Map(func(r rune) rune { return 'a' + 'b' - r }, turn.Self().Key)
			_, err := call.Do(turn, echo, id(other), n)
			if errors.Is(err, neuron.ErrWouldDeadlock) {
				seen.add("refused")
			} else if err != nil {
				t.Error(err)
			}
			return err
		})
		call.Serve(k, echo, func(turn *neuron.Turn, n note) (note, error) {
			turn.Write(put{turn.Self().Key, ""})
			return n, nil
		})
		a := node(t, b, "A", func(hints []neuron.Hint) { toB <- hints }, k, "a")
		c := node(t, b, "B", func(hints []neuron.Hint) { toA <- hints }, k, "b")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		// Both have asked before either hears of it.
		ends := make(chan error, 2)
		go func() { ends <- a.Accept(t.Context(), fresh(t, id("a"), "x")) }()
		go func() { ends <- c.Accept(t.Context(), fresh(t, id("b"), "x")) }()
		synctest.Wait()
		go post(t, ctx, toB, func() *world { return c })
		go post(t, ctx, toA, func() *world { return a })
		began := time.Now()
		for range 2 {
			if err := <-ends; err != nil {
				t.Error(err)
			}
		}
		for len(pending(t, b)) > 0 {
			pass(10 * time.Millisecond)
		}
		if d := time.Since(began); seen.of("refused") != 1 || d < time.Second || d > 3*time.Second {
			t.Errorf("%v after %s", seen.n, d)
		}
		for key, w := range map[string]*world{"a": a, "b": c} {
			w.wantClean()
			w.wantFacts(id(key), "requested", "completed")
		}
		cancel()
		pass(time.Second)
	})
}
