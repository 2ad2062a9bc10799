package fifo

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestQueueKeepsOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q Queue[int]
		in, out := 0, 0
		for range rapid.IntRange(0, 400).Draw(t, "steps") {
			if rapid.IntRange(0, 4).Draw(t, "what") < 3 {
				q.Push(in)
				in++
			} else if q.Len() > 0 {
				if q.Peek() != out || q.Pop() != out {
					t.Fatalf("out of order at %d", out)
				}
				out++
			}
			if q.Len() != in-out {
				t.Fatalf("length %d, want %d", q.Len(), in-out)
			}
		}
	})
}

// What comes out of order finds its place, whoever is the oldest stays the oldest if that is asked for, and one that is taken
// out of the middle leaves the others as they were.
func TestQueueInsertsAndRemoves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q Queue[int]
		var want []int
		for range rapid.IntRange(0, 300).Draw(t, "steps") {
			v := rapid.IntRange(0, 20).Draw(t, "value")
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0, 1:
				oldest := rapid.IntRange(0, 1).Draw(t, "oldest")
				q.Insert(v, oldest, func(other int) bool { return other > v })
				at := len(want)
				for at > oldest && want[at-1] > v {
					at--
				}
				want = slices.Insert(want, at, v)
			case 2:
				at := slices.Index(want, v)
				if got := q.Remove(func(other int) bool { return other == v }); got != at {
					t.Fatalf("removed %d, want %d", got, at)
				}
				if at >= 0 {
					want = slices.Delete(want, at, at+1)
				}
			default:
				if len(want) > 0 {
					if got := q.Pop(); got != want[0] {
						t.Fatalf("%d comes out, want %d", got, want[0])
					}
					want = want[1:]
				}
			}
			if got := q.items[q.head:]; !slices.Equal(got, want) {
				t.Fatalf("%v, want %v", got, want)
			}
		}
	})
}
