package durable_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/engine"
	"soma/internal/neuron/neurontest"
	"soma/internal/store/postgres"
	"soma/internal/store/postgres/postgrestest"
	"soma/tests/durable/counter"
)

// Each bound of neuron.Limits is met at its default: one below it, at it, and one above.

type text struct {
	Text string `json:"text,omitempty"`
}

var (
	textType = neuron.NewType[text]("bounds.text.v1")
	nextType = neuron.NewType[text]("bounds.next.v1")
)

func bound(key string) neuron.ID { return neuron.ID{Owner: "me", Kind: "bound", Key: key} }

// bounded starts an engine with one kind on a store, and takes all places.
func bounded(t *testing.T, s neuron.Store, l neuron.Limits, now func() time.Time, kind func(*neuron.Kind)) *engine.Engine {
	t.Helper()
	k := neuron.NewKind("bound")
	kind(k)
	e, err := engine.New(engine.Options{Store: s, Kinds: []*neuron.Kind{k}, Types: []string{textType.Alias(), nextType.Alias()}, Limits: l, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Second)
		defer cancel()
		if err := e.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	if p, ok := s.(*postgres.Store); ok {
		taken, err := p.Take(t.Context(), e.Fence(), neuron.AllPlaces())
		if err == nil {
			err = e.Gain(t.Context(), taken)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return e
}

// stores runs a test on each kind of store, with the default limits.
func stores(t *testing.T, fn func(t *testing.T, s neuron.Store)) {
	limits := neuron.DefaultLimits()
	for name, open := range map[string]func(*testing.T) (neuron.Store, error){
		"fake": func(*testing.T) (neuron.Store, error) { return neurontest.New(limits), nil },
		"sqlite": func(t *testing.T) (neuron.Store, error) {
			return counter.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "soma.db"), limits, 0)
		},
		"postgres": func(t *testing.T) (neuron.Store, error) {
			return counter.Open(t.Context(), postgrestest.Database(t), limits, 15*time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := open(t)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
			fn(t, s)
		})
	}
}

func said(t *testing.T, to string, body string, at time.Time) neuron.Delivery {
	t.Helper()
	d, err := textType.New(bound(to), text{body}, at)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// N-18: an attempt may take 45 s.
func TestBoundOfAnAttempt(t *testing.T) {
	const limit = 45 * time.Second
	for _, takes := range []time.Duration{limit - 1, limit, limit + 1} {
		synctest.Test(t, func(t *testing.T) {
			var ended time.Duration
			e := bounded(t, neurontest.New(neuron.DefaultLimits()), neuron.Limits{}, nil, func(k *neuron.Kind) {
				neuron.Handle(k, textType, func(t *neuron.Turn, _ text) error {
					began := time.Now()
					done := time.NewTimer(takes)
					defer done.Stop()
					select {
					case <-done.C:
						if takes < limit {
							return nil
						}
						<-t.Context().Done()
					case <-t.Context().Done():
					}
					ended = time.Since(began)
					return t.Context().Err()
				})
			})
			err := e.Deliver(t.Context(), said(t, "a", "", time.Now()))
			if takes < limit && err != nil || takes >= limit && (!errors.Is(err, context.DeadlineExceeded) || ended != limit) {
				t.Errorf("an attempt of %s: %v, ended after %s", takes, err, ended)
			}
		})
	}
}

// given runs a delivery whose n-th attempt ends with what try says, and returns its dead letters and how often it was tried.
func given(t *testing.T, l neuron.Limits, try func(n int) error) (letters []neuron.DeadLetter, tries int) {
	e := bounded(t, neurontest.New(neuron.DefaultLimits()), l, nil, func(k *neuron.Kind) {
		neuron.Handle(k, textType, func(t *neuron.Turn, m text) error { return neuron.Send(t, bound("b"), nextType, m) })
		neuron.Handle(k, nextType, func(*neuron.Turn, text) error { tries++; return try(tries) })
	})
	if err := e.Deliver(t.Context(), said(t, "a", "", time.Now())); err != nil {
		t.Fatal(err)
	}
	if err := e.Quiet(t.Context()); err != nil {
		t.Fatal(err)
	}
	letters, err := e.DeadLetters(t.Context(), ident.ID{}, 10)
	if err != nil {
		t.Fatal(err)
	}
	return letters, tries
}

// N-18: 1,000 attempts.
func TestBoundOfAttempts(t *testing.T) {
	for fails, dead := range map[int]bool{998: false, 999: false, 1000: true} {
		synctest.Test(t, func(t *testing.T) {
			letters, tries := given(t, neuron.Limits{BackoffMin: 1, BackoffMax: 1}, func(n int) error {
				if n <= fails {
					return errTrial
				}
				return nil
			})
			if want := min(fails+1, 1000); tries != want {
				t.Errorf("%d failures: %d tries, want %d", fails, tries, want)
			}
			if dead != (len(letters) == 1) || dead && letters[0].Code != neuron.AttemptsSpent {
				t.Errorf("%d failures: dead letters %+v", fails, letters)
			}
		})
	}
}

// N-18: 30 minutes from the first attempt. A pause of a nanosecond is none, so the time of the attempts is all.
func TestBoundOfTheHorizon(t *testing.T) {
	const each, all = 30 * time.Second, 60
	for past, dead := range map[time.Duration]bool{-1: false, 0: true, 1: true} {
		synctest.Test(t, func(t *testing.T) {
			letters, tries := given(t, neuron.Limits{BackoffMin: 1, BackoffMax: 1}, func(n int) error {
				takes := each
				switch {
				case n == all:
					takes += past
				case n > all:
					return nil
				}
				<-time.After(takes)
				return errTrial
			})
			want := all
			if !dead {
				want++
			}
			if tries != want || dead != (len(letters) == 1) || dead && letters[0].Code != neuron.HorizonPassed {
				t.Errorf("%d ns past the horizon: %d tries, dead letters %+v", past, tries, letters)
			}
		})
	}
}

// N-19: depth 16 passes, 17 does not.
func TestBoundOfDepth(t *testing.T) {
	for depth, passes := range map[int]bool{15: true, 16: true, 17: false} {
		reached := 0
		e := bounded(t, neurontest.New(neuron.DefaultLimits()), neuron.Limits{}, nil, func(k *neuron.Kind) {
			neuron.Handle(k, textType, func(t *neuron.Turn, m text) error { return neuron.Send(t, bound("b"), nextType, m) })
			neuron.Handle(k, nextType, func(t *neuron.Turn, _ text) error { reached = t.Delivery().Depth; return nil })
		})
		d := said(t, "a", "", time.Now())
		d.Depth = depth - 1
		err := e.Deliver(t.Context(), d)
		if qerr := e.Quiet(t.Context()); qerr != nil {
			t.Fatal(qerr)
		}
		var refusal *neuron.Refusal
		if passes && (err != nil || reached != depth) || !passes && (!errors.As(err, &refusal) || refusal.Code != neuron.TooDeep || reached != 0) {
			t.Errorf("depth %d: %v, reached %d", depth, err, reached)
		}
	}
}

// N-14: a payload of 64 KiB is sent, a larger one is refused and nothing of it stays.
func TestBoundOfAPayload(t *testing.T) {
	const limit = 64 << 10
	empty := len(`{"text":""}`)
	for _, size := range []int{limit - 1, limit, limit + 1} {
		reached := 0
		e := bounded(t, neurontest.New(neuron.DefaultLimits()), neuron.Limits{}, nil, func(k *neuron.Kind) {
			neuron.Handle(k, textType, func(t *neuron.Turn, _ text) error {
				return neuron.Send(t, bound("b"), nextType, text{strings.Repeat("x", size-empty)})
			})
			neuron.Handle(k, nextType, func(t *neuron.Turn, _ text) error { reached = len(t.Delivery().Payload); return nil })
		})
		err := e.Deliver(t.Context(), said(t, "a", "", time.Now()))
		if qerr := e.Quiet(t.Context()); qerr != nil {
			t.Fatal(qerr)
		}
		if size <= limit && (err != nil || reached != size) || size > limit && (!errors.Is(err, neuron.ErrPayloadTooLarge) || reached != 0) {
			t.Errorf("%d bytes: %v, %d arrived", size, err, reached)
		}
	}
}

// many delivers n small messages to a neuron, in order.
func many(t *testing.T, e *engine.Engine, to string, n int) {
	t.Helper()
	var wg sync.WaitGroup
	errs := make(chan error, n)
	slots := make(chan struct{}, 64) // groups of many are committed at once
	for range n {
		slots <- struct{}{}
		d := said(t, to, "", time.Now())
		wg.Go(func() { errs <- e.Deliver(t.Context(), d); <-slots })
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// N-20: the 4,096th most recent delivery is remembered, over a restart too. What is older is not promised.
func TestBoundOfTheDedupe(t *testing.T) {
	stores(t, func(t *testing.T, s neuron.Store) {
		var mu sync.Mutex
		runs := map[ident.ID]int{}
		kind := func(k *neuron.Kind) {
			neuron.Handle(k, textType, func(t *neuron.Turn, _ text) error {
				mu.Lock()
				defer mu.Unlock()
				runs[t.Delivery().ID]++
				return nil
			})
		}
		e := bounded(t, s, neuron.Limits{}, nil, kind)
		first := said(t, "a", "", time.Now())
		repeat := func(e *engine.Engine, others, most int) {
			t.Helper()
			if err := e.Deliver(t.Context(), first); err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if n := runs[first.ID]; n < 1 || n > most {
				t.Errorf("after %d others it has run %d times", others, n)
			}
		}
		repeat(e, 0, 1)
		many(t, e, "a", 4094)
		repeat(e, 4094, 1)
		many(t, e, "a", 1)
		repeat(e, 4095, 1)
		if _, ok := s.(*postgres.Store); !ok { // a new life of the node
			e = bounded(t, s, neuron.Limits{}, nil, kind)
			repeat(e, 4095, 1)
		}
		many(t, e, "a", 1)
		repeat(e, 4096, 2)
	})
}

// N-14, N-15: a reader sees 512 entries, and is told where those begin.
func TestBoundOfEntries(t *testing.T) {
	stores(t, func(t *testing.T, s neuron.Store) {
		e := bounded(t, s, neuron.Limits{}, nil, func(k *neuron.Kind) {
			neuron.Handle(k, textType, func(t *neuron.Turn, m text) error { return neuron.Send(t, bound("sink"), nextType, m) })
			neuron.Handle(k, nextType, func(*neuron.Turn, text) error { return nil })
		})
		at := 0
		for _, n := range []int{511, 512, 513} {
			many(t, e, "a", n-at)
			at = n
			for _, f := range []neuron.Feed{neuron.In, neuron.Out} {
				p, err := e.Read(t.Context(), bound("a"), f, 0, 0)
				if err != nil {
					t.Fatal(err)
				}
				if first := max(1, n-511); p.First != uint64(first) || p.Reset != (first > 1) || len(p.Entries) != n-first+1 || p.Last != uint64(n) {
					t.Errorf("%d entries in feed %d: first %d, reset %v, %d shown of %d", n, f, p.First, p.Reset, len(p.Entries), p.Last)
				}
			}
		}
	})
}

// N-14: a reader sees 512 KiB, counted as entries are encoded.
func TestBoundOfBytes(t *testing.T) {
	const limit = 512 << 10
	stores(t, func(t *testing.T, s neuron.Store) {
		now := time.UnixMicro(1_800_000_000_123_456).UTC() // of which every encoding has one length
		e := bounded(t, s, neuron.Limits{}, func() time.Time { return now }, func(k *neuron.Kind) {
			neuron.Handle(k, textType, func(*neuron.Turn, text) error { return nil })
		})
		size := func(key string) (bytes int) {
			p, err := e.Read(t.Context(), bound(key), neuron.In, 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			for i := range p.Entries {
				b, err := neuron.EncodeEntry(&p.Entries[i])
				if err != nil {
					t.Fatal(err)
				}
				bytes += len(b)
			}
			return bytes
		}
		deliver := func(key string, pad int) {
			t.Helper()
			if err := e.Deliver(t.Context(), said(t, key, strings.Repeat("x", pad), now)); err != nil {
				t.Fatal(err)
			}
		}
		deliver("z-", 1)
		empty := size("z-") - 1
		for past, first := range map[int]uint64{-1: 1, 0: 1, 1: 2} {
			key := fmt.Sprint("k", past+1)
			for range 8 {
				deliver(key, 60_000)
			}
			deliver(key, limit+past-size(key)-empty)
			p, err := e.Read(t.Context(), bound(key), neuron.In, 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			if p.First != first || p.Reset != (first > 1) || p.Last != 9 || len(p.Entries) != 10-int(first) {
				t.Errorf("%d bytes: first %d, reset %v, %d entries of %d", limit+past, p.First, p.Reset, len(p.Entries), p.Last)
			}
		}
	})
}
