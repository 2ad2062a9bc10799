package floor

import (
	"testing"
	"time"
)

// The loop must do what its figures say: a row for each answered turn.
func TestLoop(t *testing.T) {
	l, err := Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r, err := l.Run(50*time.Millisecond, 8)
	if err != nil {
		t.Fatal(err)
	}
	var rows int
	if err := l.db.QueryRowContext(t.Context(), "select count(*) from turn").Scan(&rows); err != nil || rows != r.N {
		t.Errorf("%d rows for %d turns, %v", rows, r.N, err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
