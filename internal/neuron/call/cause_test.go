package call_test

import (
	"testing"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/call"
)

// N-28: from its start over every part to its end and its disposal, a stream has the correlation of the delivery whose handler
// pulls it; what its target sends for a part, or for the disposal, has the same and is caused by that part.
func TestStreamKeepsItsCause(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		var runs counter
		takes := map[string]int{"all": 7, "left": 4}
		k := kind(func(turn *neuron.Turn, n note) error {
			it, err := call.Pull(turn, count, id("b"), note{Text: n.Text, N: 7})
			if err != nil {
				return err
			}
			for range takes[n.Text] + 1 {
				_, more, err := it.Next()
				if err != nil || !more {
					return err
				}
				if runs.add("items of "+n.Text) == takes[n.Text] && n.Text == "left" {
					break
				}
			}
			return nil
		})
		counting(k, &runs)
		w := start(t, b, k)
		of := map[ident.ID]string{}
		for text, end := range map[string]string{"all": "completed", "left": "abandoned"} {
			d := fresh(t, id(text), text)
			d.Correlation = ident.New(d.At) // not the delivery's own
			if err := w.Deliver(t.Context(), d); err != nil {
				t.Fatal(err)
			}
			w.wantClean()
			of[d.Correlation] = text
			for _, f := range w.wantFacts(id(text), "requested", end) {
				if f.Correlation != d.Correlation || f.Causation != d.ID {
					t.Errorf("%s: the fact %s is of %s, caused by %s", text, f.alias, f.Correlation, f.Causation)
				}
			}
		}
		// Three parts of the one, two and the disposal of the other.
		parts, asked := map[ident.ID]ident.ID{}, map[string]int{}
		for _, e := range w.entries(id("b"), neuron.In) {
			parts[e.ID] = e.Correlation
			asked[of[e.Correlation]]++
		}
		caused := map[ident.ID]int{}
		for _, e := range w.entries(id("b"), neuron.Out) {
			if correlation, ok := parts[e.Causation]; !ok || e.Correlation != correlation {
				t.Errorf("sent inside: %+v", e)
			}
			caused[e.Causation]++
		}
		if asked["all"] != 3 || asked["left"] != 3 || len(caused) != 6 || runs.of("left disposed at 6") != 1 {
			t.Errorf("asked %v, caused %v, ran %v", asked, caused, runs.n)
		}
	})
}
