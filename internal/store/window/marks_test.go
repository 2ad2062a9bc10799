package window

import (
	"testing"

	"pgregory.net/rapid"

	"soma/internal/neuron"
)

// A list of marks stays short, and its cut is never within the window nor far before it.
func TestMarks(t *testing.T) {
	// N-14
	rapid.Check(t, func(t *rapid.T) {
		l := neuron.DefaultLimits()
		var list []Mark
		type turn struct{ entries, bytes uint64 }
		all := []turn{{}}
		now := Mark{}
		var last uint64
		for range rapid.IntRange(1, 300).Draw(t, "checkpoints") {
			n := rapid.IntRange(1, 64).Draw(t, "turns")
			entries, size := rapid.Uint64Range(0, 3).Draw(t, "entries"), rapid.SampledFrom([]uint64{50, 50, 3000, 60_000}).Draw(t, "size")
			for range n {
				now.Turn++
				now.Entries += entries
				now.Bytes += entries * size
				all = append(all, turn{now.Entries, now.Bytes})
			}
			var cut uint64
			list, cut = Set(list, now, l)
			if len(list) > 2*markStep+2 {
				t.Fatalf("%d marks", len(list))
			}
			if cut < last {
				t.Fatalf("the cut went back from %d to %d", last, cut)
			}
			last = cut
			if c := all[cut]; cut > 0 && now.Entries-c.entries < uint64(l.JournalEntries) && now.Bytes-c.bytes < uint64(l.JournalBytes) {
				t.Fatalf("turn %d of %d is in the window", cut, now.Turn)
			}
			// Twice the window by both measures must have been cut, allowing for one checkpoint.
			for i := cut + 1; i+64 < now.Turn; i++ {
				if c := all[i+64]; now.Entries-c.entries > 2*uint64(l.JournalEntries) {
					t.Fatalf("turn %d of %d was not cut, only up to %d", i, now.Turn, cut)
				}
			}
		}
	})
}
