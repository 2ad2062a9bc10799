package sqlite

import (
	"errors"
	"testing"
	"time"

	"soma/internal/neuron"
)

// N-35: rows of nodes that were here more than seven days ago go with the next claim, and no epoch comes twice.
func TestNodesAreForgotten(t *testing.T) {
	now := time.Now()
	s := mustOpen(t, dbPath(t), Options{Now: func() time.Time { return now }})
	nodes := func() (n int64) {
		t.Helper()
		if err := s.Query(t.Context(), `select count(*) from node`, nil, func(scan func(...any) error) error { return scan(&n) }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	seen := map[uint64]bool{}
	var last neuron.Fence
	for i, step := range []struct {
		node string
		days int
		want int64
	}{{"a", 0, 1}, {"b", 1, 2}, {"c", 5, 3}, {"c", 2, 2}, {"a", 8, 1}, {"a", 9, 1}, {"b", 0, 2}} {
		now = now.Add(time.Duration(step.days) * 24 * time.Hour)
		f, err := s.Claim(t.Context(), step.node)
		if err != nil {
			t.Fatal(err)
		}
		if seen[f.Epoch] || f.Epoch <= last.Epoch {
			t.Errorf("step %d: epoch %d after %d", i, f.Epoch, last.Epoch)
		}
		seen[f.Epoch] = true
		if n := nodes(); n != step.want {
			t.Errorf("step %d: %d nodes, want %d", i, n, step.want)
		}
		if i > 0 {
			if err := s.Commit(t.Context(), last, nil); !errors.Is(err, neuron.ErrFenced) {
				t.Errorf("step %d: the life before commits: %v", i, err)
			}
		}
		last = f
	}
}
