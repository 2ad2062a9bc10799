//go:build crash

package durable_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/store/postgres/postgrestest"
	"soma/tests/durable/counter"
)

// N-36: without the fence, an owner that was paused and believes in its lease commits over its successor, and that is noticed.
func TestWithoutFence(t *testing.T) {
	err := pausedOwner(t, "SOMA_FAULT=belief_off,fence_off")
	if err == nil {
		t.Fatal("a commit of a stale owner was not noticed")
	}
	t.Logf("noticed: %v", err)
}

// repeated delivers again what was delivered, before and after a kill, and returns what went wrong.
func repeated(t *testing.T, s setup) error {
	p := start(t, s)
	id, last := ident.New(time.Now()), int64(0)
	for n := range 4 {
		if n == 2 {
			p.kill()
			p = start(t, s)
		}
		for end := time.Now().Add(patience); ; pause(t, 20*time.Millisecond) {
			var err error
			if last, err = p.ask(t.Context(), request{Op: "add", ID: id, Key: "k", Add: counter.Add{By: 1}}); err == nil {
				break
			} else if time.Now().After(end) {
				return err
			}
		}
	}
	p.stop()
	store, err := counter.Open(t.Context(), s.dsn, counter.Small(), term)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if last != 1 {
		return fmt.Errorf("the repeat came to %d", last)
	}
	return counter.Check(t.Context(), store, map[neuron.ID]int64{counter.Counter("k"): 1})
}

// N-20: a repeat has no effect; without the memory of deliveries it has one, and that is noticed.
func TestWithoutDedupe(t *testing.T) {
	for name, open := range map[string]func(*testing.T) setup{
		"sqlite": func(t *testing.T) setup {
			return setup{dsn: "sqlite:" + filepath.Join(t.TempDir(), "soma.db"), name: "a"}
		},
		"postgres": func(t *testing.T) setup { return setup{dsn: postgrestest.Database(t), name: "a", lease: term} },
	} {
		t.Run(name, func(t *testing.T) {
			if err := repeated(t, open(t)); err != nil {
				t.Errorf("with it: %v", err)
			}
			s := open(t)
			s.env = []string{"SOMA_FAULT=dedupe_off"}
			err := repeated(t, s)
			if err == nil {
				t.Fatal("a delivery that was done again was not noticed")
			}
			t.Logf("noticed: %v", err)
		})
	}
}
