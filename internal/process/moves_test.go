package process

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/store/sqlite"
)

// shelf is what a host needs of a store and an engine, for its own writes.
type shelf struct {
	*sqlite.Store
	mu    sync.Mutex
	fence neuron.Fence
}

func newShelf(t *testing.T) *shelf {
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "soma.db"), sqlite.Options{Sequences: Sequences()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	w := &shelf{Store: s}
	if w.fence, err = s.Claim(t.Context(), "node"); err != nil {
		t.Fatal(err)
	}
	return w
}

func (s *shelf) Deliver(context.Context, neuron.Delivery) error { return neuron.ErrStopped }

func (s *shelf) Write(ctx context.Context, place neuron.Place, ops ...neuron.Op) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Commit(ctx, s.fence, []*neuron.Record{{Place: place, Ops: ops}})
}

func (s *shelf) host(node string) *Host {
	h := New(Options{Node: node, Owner: "me", Reader: s, Shared: true, MaxConcurrent: 2, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	h.Bind(s)
	return h
}

// put writes a process that is Ready.
func (s *shelf) put(t *testing.T, pid ident.PID, session string) {
	t.Helper()
	op := &insertProcess{pid: pid, owner: "me", session: session, branch: ident.New(time.Now()), state: "ready", at: time.Now()}
	if err := s.Write(t.Context(), 0, op); err != nil {
		t.Fatal(err)
	}
}

// M-12, K-16: the processes of gained places are queued, in order, those of other places are not; those of released places are
// dropped, and a place whose process has a slot is busy.
func TestPlacesComeAndGo(t *testing.T) {
	s := newShelf(t)
	h := s.host("node")
	here, there := "a", "b"
	for i, session := range []string{here, there, here, here} {
		s.put(t, ident.PID(i+1), session)
	}
	mine, other := neuron.PlacesOf(neuron.PlaceOf(here)), neuron.PlacesOf(neuron.PlaceOf(there))
	if mine == other {
		t.Fatal("the sessions share a place")
	}
	if err := h.Gain(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	next := func() ident.PID {
		h.slots.mu.Lock()
		defer h.slots.mu.Unlock()
		d := h.slots.queue.Next()
		if d.PID != 0 {
			h.slots.known[d.PID] = waiter{place: h.slots.known[d.PID].place, running: true}
		}
		return d.PID
	}
	if h.Busy(neuron.PlaceOf(here)) {
		t.Error("busy before anything runs")
	}
	if a, b, c := next(), next(), next(); a != 1 || b != 3 || c != 0 {
		t.Errorf("dispatched %d, %d, %d", a, b, c)
	}
	if !h.Busy(neuron.PlaceOf(here)) || h.Busy(neuron.PlaceOf(there)) {
		t.Error("the place of the running process is not the busy one")
	}
	h.Release(mine)
	if h.Busy(neuron.PlaceOf(here)) || len(h.slots.known) != 0 || h.slots.queue.Running() != 0 || h.slots.queue.Waiting() != 0 {
		t.Errorf("after the release: %v", h.slots.known)
	}
	if err := h.Gain(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if a, b := next(), next(); a != 2 || b != 0 {
		t.Errorf("dispatched %d, %d", a, b)
	}
	place, known, err := h.PlaceOf(t.Context(), 2)
	if err != nil || !known || place != neuron.PlaceOf(there) {
		t.Errorf("process 2 is at %d, %v, %v", place, known, err)
	}
	if _, known, err := h.PlaceOf(t.Context(), 99); err != nil || known {
		t.Errorf("process 99 is known, %v", err)
	}
}
