package schedule

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
	"soma/ident"
)

func drain(r *RoundRobin) (pids []ident.PID, last Kind) {
	for {
		d := r.Next()
		if d.Kind != Run {
			return pids, d.Kind
		}
		pids = append(pids, d.PID)
	}
}

// K-17: runnable processes go in order as soon as a slot is free, and each decision has its name.
func TestDecisions(t *testing.T) {
	r := NewRoundRobin(2)
	if d := r.Next(); d.Kind != Idle {
		t.Fatalf("empty: %v", d.Kind)
	}
	for pid := range ident.PID(4) {
		r.Ready(pid + 1)
		r.Ready(pid + 1) // a second wake-up keeps the place
	}
	pids, last := drain(r)
	if !slices.Equal(pids, []ident.PID{1, 2}) || last != AtConcurrencyLimit {
		t.Fatalf("got %v, %v", pids, last)
	}
	r.Done(3) // taken out of the queue
	r.Ready(1)
	r.Done(1) // its slot is free, and it queues behind 4
	r.Done(2)
	pids, last = drain(r)
	if !slices.Equal(pids, []ident.PID{4, 1}) || last != Idle {
		t.Fatalf("got %v, %v", pids, last)
	}
	r.Shutdown()
	r.Ready(9)
	if d := r.Next(); d.Kind != Shutdown {
		t.Fatalf("after Shutdown: %v", d.Kind)
	}
}

func TestDefaultLimit(t *testing.T) {
	r := NewRoundRobin(0)
	for pid := range ident.PID(10) {
		r.Ready(pid + 1)
	}
	if pids, _ := drain(r); len(pids) != DefaultMaxConcurrent {
		t.Fatalf("%d run at once", len(pids))
	}
}

// The queue agrees with a plain list under any sequence of calls.
func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		max := rapid.IntRange(1, 3).Draw(t, "max")
		r := NewRoundRobin(max)
		var queue []ident.PID
		running := map[ident.PID]bool{} // value: ready again
		t.Repeat(map[string]func(*rapid.T){
			"ready": func(t *rapid.T) {
				pid := ident.PID(rapid.IntRange(1, 6).Draw(t, "pid"))
				r.Ready(pid)
				if _, ok := running[pid]; ok {
					running[pid] = true
				} else if !slices.Contains(queue, pid) {
					queue = append(queue, pid)
				}
			},
			"done": func(t *rapid.T) {
				pid := ident.PID(rapid.IntRange(1, 6).Draw(t, "pid"))
				r.Done(pid)
				if again, ok := running[pid]; ok {
					delete(running, pid)
					if again {
						queue = append(queue, pid)
					}
				} else if i := slices.Index(queue, pid); i >= 0 {
					queue = slices.Delete(queue, i, i+1)
				}
			},
			"next": func(t *rapid.T) {
				want := Decision{Kind: Idle}
				if len(queue) > 0 {
					want.Kind = AtConcurrencyLimit
					if len(running) < max {
						want = Decision{Kind: Run, PID: queue[0]}
						queue = queue[1:]
						running[want.PID] = false
					}
				}
				if got := r.Next(); got != want {
					t.Fatalf("Next = %v, want %v", got, want)
				}
			},
			"": func(t *rapid.T) {
				if r.Waiting() != len(queue) || r.Running() != len(running) || len(r.entries) != len(queue)+len(running) {
					t.Fatalf("waiting %d running %d entries %d, want %d, %d", r.Waiting(), r.Running(), len(r.entries), len(queue), len(running))
				}
			},
		})
	})
}

// K-17: with 100,000 ready a decision takes no work that grows with the queue: it allocates nothing, and one that asked for
// even a single pass over the queue would not come through 100,000 of them in the test's time.
func TestHundredThousandReady(t *testing.T) {
	const n = 100_000
	r := NewRoundRobin(4)
	for pid := range ident.PID(n) {
		r.Ready(pid + 1)
	}
	pids, _ := drain(r)
	seen := slices.Clone(pids)
	allocs := testing.AllocsPerRun(n-len(pids)-1, func() {
		r.Done(seen[len(seen)-1])
		d := r.Next()
		if d.Kind != Run {
			t.Fatalf("after %d: %v", len(seen), d.Kind)
		}
		seen = append(seen[:0], d.PID)
	})
	if allocs != 0 {
		t.Errorf("%v allocations a decision", allocs)
	}
	if r.Waiting() != 0 {
		t.Errorf("%d still wait", r.Waiting())
	}
}

func BenchmarkNext(b *testing.B) {
	r := NewRoundRobin(1)
	for pid := range ident.PID(100_000) {
		r.Ready(pid + 1)
	}
	for b.Loop() {
		d := r.Next()
		r.Ready(d.PID)
		r.Done(d.PID)
	}
}
