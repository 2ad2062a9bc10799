package fifo

import (
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
