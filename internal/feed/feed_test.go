package feed

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shelf is a stored feed of numbers, of which the first may be gone.
type shelf struct {
	mu    sync.Mutex
	first uint64
	last  uint64
	reads int
	err   error
}

func (s *shelf) read(_ context.Context, after uint64, limit int) (Page[uint64], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	if s.err != nil {
		return Page[uint64]{}, s.err
	}
	p := Page[uint64]{Reset: Reset{First: s.first, Last: s.last, Tallies: map[string]uint64{"n": s.last}}, Gone: after+1 < s.first}
	for seq := max(after+1, s.first); seq <= s.last && len(p.Items) < limit; seq++ {
		p.Items = append(p.Items, Item[uint64]{seq, seq * 10})
	}
	return p, nil
}

// commit adds n items and publishes them, as a committer does.
func (s *shelf) commit(h *Hub[string, uint64], n int) {
	s.mu.Lock()
	var items []Item[uint64]
	for range n {
		s.last++
		items = append(items, Item[uint64]{s.last, s.last * 10})
	}
	s.mu.Unlock()
	h.Publish("k", items...)
}

func want(t *testing.T, w *Watcher[uint64], from, to uint64) {
	t.Helper()
	for seq := from; seq <= to; seq++ {
		e, err := w.Next(t.Context())
		if err != nil || e.Reset != nil || e.Seq != seq || e.Value != seq*10 {
			t.Fatalf("item %d: %+v, %v", seq, e, err)
		}
	}
}

// N-16: from any cursor a watcher gets each item once, in order, first the stored ones and then those of the moment, and
// the store is not asked while it keeps up.
func TestWatcherGetsEachItemOnce(t *testing.T) {
	h, s := NewHub[string, uint64]("g"), &shelf{first: 1}
	s.commit(h, 700)
	w := h.Watch("k", Cursor{"g", 10}, s.read)
	defer w.Close()
	want(t, w, 11, 700)
	s.commit(h, 3)
	want(t, w, 701, 703)
	reads := s.reads
	for i := range uint64(500) {
		s.commit(h, 1)
		want(t, w, 704+i, 704+i)
	}
	if s.reads != reads {
		t.Errorf("%d reads by a watcher that keeps up", s.reads-reads)
	}
	if w.Last() != 1203 || !h.Watched("k") || h.Watched("other") {
		t.Errorf("last %d, watched %v", w.Last(), h.Watched("k"))
	}
}

// N-16: a slow watcher holds up nobody, is dropped to the store and loses nothing.
func TestSlowWatcher(t *testing.T) {
	h, s := NewHub[string, uint64]("g"), &shelf{first: 1}
	slow, quick := h.Watch("k", Cursor{}, s.read), h.Watch("k", Cursor{}, s.read)
	defer slow.Close()
	defer quick.Close()
	for i := range uint64(40) {
		s.commit(h, 100)
		want(t, quick, i*100+1, i*100+100)
		if i == 0 {
			want(t, slow, 1, 1)
		}
	}
	if n := len(slow.buf); n > buffered {
		t.Errorf("%d items wait", n)
	}
	want(t, slow, 2, 4000)
}

// N-15: who is behind what is kept hears so once, and goes on at the first kept item.
func TestReset(t *testing.T) {
	h, s := NewHub[string, uint64]("g"), &shelf{first: 1}
	s.commit(h, 1000)
	s.first = 489
	for _, c := range []Cursor{{}, {"g", 487}, {"another", 5000}} {
		w := h.Watch("k", c, s.read)
		e, err := w.Next(t.Context())
		if err != nil || e.Reset == nil || e.Reset.First != 489 || e.Reset.Last != 1000 || e.Reset.Tallies["n"] != 1000 {
			t.Fatalf("cursor %v: %+v, %v", c, e, err)
		}
		want(t, w, 489, 1000)
		w.Close()
	}
	w := h.Watch("k", Cursor{"g", 488}, s.read)
	want(t, w, 489, 1000)
	w.Close()
	// A foreign cursor is reset even where all is kept.
	s.first = 1
	w = h.Watch("k", Cursor{"another", 3}, s.read)
	defer w.Close()
	if e, err := w.Next(t.Context()); err != nil || e.Reset == nil || e.Reset.First != 1 {
		t.Fatalf("%+v, %v", e, err)
	}
	want(t, w, 1, 1000)
}

// N-16: an idle watcher waits without polling, and wakes by a publish, its context, or the end.
func TestWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, s := NewHub[string, uint64]("g"), &shelf{first: 1}
		w := h.Watch("k", Cursor{}, s.read)
		got := make(chan Event[uint64])
		go func() {
			for {
				e, err := w.Next(t.Context())
				if err != nil {
					if !errors.Is(err, ErrClosed) {
						t.Error(err)
					}
					close(got)
					return
				}
				got <- e
			}
		}()
		synctest.Wait()
		reads := s.reads
		h.Show("k", 7)
		if e := <-got; e.Seq != 0 || e.Value != 7 {
			t.Errorf("passing item %+v", e)
		}
		s.commit(h, 1)
		if e := <-got; e.Seq != 1 {
			t.Errorf("item %+v", e)
		}
		if s.reads != reads {
			t.Errorf("%d reads while waiting", s.reads-reads)
		}
		w.Close()
		<-got
		w.Close()
		if h.Watched("k") {
			t.Error("a closed watcher stays")
		}

		w = h.Watch("k", Cursor{"g", 1}, s.read)
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("cause")
		cancel(cause)
		if _, err := w.Next(ctx); !errors.Is(err, cause) {
			t.Errorf("after its context: %v", err)
		}
		h.Close()
		if _, err := w.Next(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("after the hub: %v", err)
		}
		if _, err := h.Watch("k", Cursor{}, s.read).Next(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("new one after the hub: %v", err)
		}
	})
}

// An error of the store ends nothing: the watcher asks again.
func TestSourceFails(t *testing.T) {
	h, s := NewHub[string, uint64]("g"), &shelf{first: 1, err: errors.New("broken")}
	w := h.Watch("k", Cursor{}, s.read)
	defer w.Close()
	if _, err := w.Next(t.Context()); !errors.Is(err, s.err) {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.err = nil
	s.mu.Unlock()
	s.commit(h, 2)
	want(t, w, 1, 2)
}

// Passing items never push out numbered ones.
func TestPassingItemsAreDropped(t *testing.T) {
	h, s := NewHub[string, uint64]("g"), &shelf{first: 1}
	w := h.Watch("k", Cursor{}, s.read)
	defer w.Close()
	s.commit(h, 1)
	want(t, w, 1, 1)
	reads := s.reads
	for range 10 * buffered {
		h.Show("k", 1)
	}
	s.commit(h, buffered/2)
	passing := 0
	for seq := uint64(2); seq <= buffered/2+1; {
		e, err := w.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if e.Seq == 0 {
			passing++
			continue
		}
		if e.Seq != seq {
			t.Fatalf("item %d instead of %d", e.Seq, seq)
		}
		seq++
	}
	if passing != buffered/2 || s.reads != reads {
		t.Errorf("%d passing items, %d reads", passing, s.reads-reads)
	}
}

// N-16: whatever the pace of publishers and watchers, nothing is lost, doubled or out of order.
func TestRandomPace(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h, s := NewHub[string, uint64]("g"), &shelf{first: 1}
		total := rapid.IntRange(1, 3000).Draw(rt, "total")
		step := rapid.IntRange(1, 400).Draw(rt, "step")
		s.commit(h, rapid.IntRange(0, 600).Draw(rt, "before"))
		end := s.last + uint64(total)
		var wg sync.WaitGroup
		for range rapid.IntRange(1, 3).Draw(rt, "watchers") {
			from := rapid.Uint64Range(0, s.last).Draw(rt, "from")
			w := h.Watch("k", Cursor{"g", from}, s.read)
			wg.Go(func() {
				defer w.Close()
				for seq := from + 1; seq <= end; {
					e, err := w.Next(t.Context())
					switch {
					case err != nil:
						t.Error(err)
						return
					case e.Seq == 0:
					case e.Seq != seq:
						t.Errorf("item %d instead of %d", e.Seq, seq)
						return
					default:
						seq++
					}
				}
			})
		}
		for left := total; left > 0; {
			n := min(left, 1+rand.IntN(step))
			s.commit(h, n)
			if rand.IntN(3) == 0 {
				h.Show("k", 1)
			}
			left -= n
		}
		wg.Wait()
	})
}

func TestCursorText(t *testing.T) {
	for _, c := range []Cursor{{}, {"g", 0}, {"abc", 12}} {
		if got, err := ParseCursor(c.String()); err != nil || got != c {
			t.Errorf("%v came back as %v, %v", c, got, err)
		}
	}
	for _, s := range []string{"x", ".1", "a.", "a.-1", "a.01", "a.+1", "a.1.2", "a.99999999999999999999", string(make([]byte, 70)) + ".1"} {
		if c, err := ParseCursor(s); !errors.Is(err, ErrCursor) {
			t.Errorf("%q: %v, %v", s, c, err)
		}
	}
}
