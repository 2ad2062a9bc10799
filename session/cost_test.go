package session

import (
	"context"
	"runtime"
	"testing"
	"time"
	"unsafe"
)

// S-20, S-26: telling ten subscribers of an event allocates nothing but the list of their results, and nothing at all where
// nobody wants it.
func TestEmitAllocates(t *testing.T) {
	type event struct{}
	o := NewObserver(ObserverOptions{History: 100})
	o.SetGate(func(context.Context, any) (bool, error) { return true, nil })
	for range 10 {
		h := HandlerOf(func(context.Context, *event, *Observer) (any, error) { return nil, nil })
		if err := o.Observe(h, Type[*event]()); err != nil {
			t.Fatal(err)
		}
	}
	ctx, e := t.Context(), &event{}
	for range 200 {
		o.SafeEmit(ctx, e)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = o.Emit(ctx, e) }); n > 1 {
		t.Errorf("Emit allocates %v times", n)
	}
	if n := testing.AllocsPerRun(100, func() { o.SafeEmit(ctx, e) }); n > 0 {
		t.Errorf("SafeEmit allocates %v times", n)
	}
}

// S-24: registering many handlers copies nothing that is there already.
func TestObserveIsLinear(t *testing.T) {
	const handlers = 10_000
	o := NewObserver(ObserverOptions{})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range handlers {
		h := NewHandler(func(context.Context, any, *Observer) (any, error) { return nil, nil })
		if err := o.Observe(h, Type[int]()); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / handlers; each > 2_000 {
		t.Errorf("a handler takes %d bytes", each)
	}
}

// S-05, S-09: leaving costs about the same whatever the number of members.
func TestRemoveIsConstant(t *testing.T) {
	each := func(members int) time.Duration {
		best := time.Hour
		for range 3 {
			s, err := New(Options{})
			if err != nil {
				t.Fatal(err)
			}
			for range members {
				if _, err := s.NewBranch(BranchOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			list := s.Branches()
			began := time.Now()
			for _, b := range list {
				if _, err := s.Remove(b.ID()); err != nil {
					t.Fatal(err)
				}
			}
			best = min(best, time.Since(began)/time.Duration(members))
		}
		return best
	}
	if few, many := each(500), each(30_000); many > 10*few {
		t.Errorf("one of 500 leaves in %v, one of 30,000 in %v", few, many)
	}
}

// S-26: the history weighs what the text of Observer says, and no more after any number of events.
func TestHistoryWeighsWhatItSays(t *testing.T) {
	if size := unsafe.Sizeof(record{}); size != 48 {
		t.Errorf("a record has %d bytes", size)
	}
	weigh := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := weigh()
	o := NewObserver(ObserverOptions{})
	if err := o.Route(func(any) bool { return true }, "all"); err != nil {
		t.Fatal(err)
	}
	var e struct{ n int }
	for range 3 * DefaultHistory {
		o.SafeEmit(t.Context(), &e)
	}
	weight := weigh() - before
	if n := len(o.history.slots); n != DefaultHistory {
		t.Errorf("there are slots for %d events", n)
	}
	// 48 for the record, 8 for its place in the stream, which may have room for as much again.
	if most := uint64(DefaultHistory * (48 + 2*8)); weight > most+100_000 {
		t.Errorf("%d events weigh %d bytes, more than %d", DefaultHistory, weight, most)
	}
	if n := o.Len(); n != DefaultHistory || o.Dropped() != 2*DefaultHistory {
		t.Errorf("%d kept, %d dropped", n, o.Dropped())
	}
}
