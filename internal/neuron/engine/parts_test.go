package engine

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"pgregory.net/rapid"

	"soma/ident"
)

// The table of states: from each one only the listed events lead on.
func TestStates(t *testing.T) {
	want := map[state]map[event]state{
		idle:       {arrive: queued},
		queued:     {arrive: queued, take: busy},
		busy:       {arrive: busy, stage: committing, more: queued, rest: idle},
		committing: {arrive: committing, stage: committing, more: queued, rest: idle}, // stage: what follows a failed commit
	}
	for s := idle; s <= committing; s++ {
		for ev := arrive; ev <= rest; ev++ {
			next, ok := want[s][ev]
			if got, panicked := try(s, ev); panicked == ok || ok && got != next {
				t.Errorf("state %d event %d: %d, panic %v", s, ev, got, panicked)
			}
		}
	}
}

func try(s state, ev event) (next state, panicked bool) {
	defer func() { panicked = recover() != nil }()
	return s.on(ev), false
}

func TestQueueKeepsOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q queue[int]
		in, out := 0, 0
		for range rapid.IntRange(0, 400).Draw(t, "steps") {
			if rapid.IntRange(0, 4).Draw(t, "what") < 3 {
				q.push(in)
				in++
			} else if q.len() > 0 {
				if q.peek() != out || q.pop() != out {
					t.Fatalf("out of order at %d", out)
				}
				out++
			}
			if q.len() != in-out {
				t.Fatalf("length %d, want %d", q.len(), in-out)
			}
		}
	})
}

func TestBefore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var id ident.ID
		copy(id[:], rapid.SliceOfN(rapid.Byte(), ident.Size, ident.Size).Draw(t, "id"))
		if id.IsZero() {
			t.Skip()
		}
		b := before(id)
		if !later(id, b) {
			t.Fatalf("%v is not before %v", b, id)
		}
		for i := len(b) - 1; i >= 0; i-- { // one more is id again
			b[i]++
			if b[i] != 0 {
				break
			}
		}
		if b != id {
			t.Fatalf("%v is not next to %v", b, id)
		}
	})
}

// N-45: what ran is read back after a kill, and nothing after a clean end.
func TestInflight(t *testing.T) {
	path := filepath.Join(t.TempDir(), "inflight")
	open := func(wantCrashed bool, want ...ident.ID) *inflight {
		t.Helper()
		f, crashed, ids, err := openInflight(path)
		if err != nil || crashed != wantCrashed || len(ids) != len(want) {
			t.Fatalf("crashed %v ids %v, %v", crashed, ids, err)
		}
		for i := range want {
			if ids[i] != want[i] {
				t.Fatalf("ids %v, want %v", ids, want)
			}
		}
		return f
	}
	a, b := ident.New(time.Now()), ident.New(time.Now())
	f := open(false)
	f.begin(nil)
	f.enter(0, a)
	f.enter(1, b)
	f.leave(0)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	g := open(true, b) // the first one is dead
	g.begin(map[ident.ID]int{b: 2})
	h := open(true)
	if got := h.suspects(); len(got) != 1 || got[b] != 2 {
		t.Errorf("suspects %v", got)
	}
	h.begin(h.suspects())
	h.clear(b)
	if got := h.suspects(); len(got) != 0 {
		t.Errorf("suspects %v", got)
	}
	for _, f := range []*inflight{f, g, h} {
		if err := f.close(); err != nil {
			t.Error(err)
		}
	}
	if err := open(false).close(); err != nil {
		t.Error(err)
	}
	var none *inflight
	none.begin(nil)
	none.enter(0, a)
	none.leave(0)
	if err := none.close(); err != nil {
		t.Error(err)
	}
}
