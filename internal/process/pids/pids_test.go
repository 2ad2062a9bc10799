package pids

import (
	"context"
	"path/filepath"
	"sync"
	"testing"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/store/sqlite"
)

// shelf is a real store that several nodes write.
type shelf struct {
	*sqlite.Store
	mu     sync.Mutex
	fence  neuron.Fence
	before func() // of each commit
}

func newShelf(t *testing.T) *shelf {
	t.Helper()
	store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "soma.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	s := &shelf{Store: store}
	if s.fence, err = store.Claim(t.Context(), "node"); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *shelf) block() *Block {
	return &Block{Reader: s, Write: func(ctx context.Context, place neuron.Place, ops ...neuron.Op) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.before != nil {
			s.before()
		}
		return s.Commit(ctx, s.fence, []*neuron.Record{{Place: place, Ops: ops}})
	}}
}

// M-12, K-55: nodes that reserve pids at the same time never get the same one.
func TestSeveralNodes(t *testing.T) {
	s := newShelf(t)
	const nodes, each = 4, 5 * blockSize
	var wg sync.WaitGroup
	taken := make(chan ident.PID, nodes*each)
	for range nodes {
		b := s.block()
		wg.Go(func() {
			for range each {
				pid, err := b.Take(t.Context(), 7)
				if err != nil {
					t.Error(err)
					return
				}
				taken <- pid
			}
		})
	}
	wg.Wait()
	close(taken)
	seen := map[ident.PID]bool{}
	for pid := range taken {
		if seen[pid] || pid == 0 {
			t.Errorf("pid %d twice", pid)
		}
		seen[pid] = true
	}
	if len(seen) != nodes*each {
		t.Errorf("%d pids", len(seen))
	}
}

// M-12: a block that another node was quicker to reserve is not given out.
func TestQuickerNode(t *testing.T) {
	s := newShelf(t)
	slow, quick := s.block(), s.block()
	s.before = func() {
		s.before = nil
		if err := s.Commit(t.Context(), s.fence, []*neuron.Record{{Ops: []neuron.Op{&saveNext{was: 1, next: 1 + blockSize}}}}); err != nil {
			t.Error(err)
		}
		quick.next, quick.end = 1, 1+blockSize
	}
	a, err := slow.Take(t.Context(), 7)
	if err != nil {
		t.Fatal(err)
	}
	b, err := quick.Take(t.Context(), 7)
	if err != nil || a != 1+blockSize || b != 1 {
		t.Errorf("slow has %d, quick %d, %v", a, b, err)
	}
}
