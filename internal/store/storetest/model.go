package storetest

import (
	"fmt"
	"strconv"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"soma/internal/neuron"
)

// testModel runs random groups of random turns against what the actors know of themselves.
func testModel(t *testing.T, e Engine) {
	// N-13, N-14, N-15
	s := open(t, e)
	f := claim(t, e, s)
	var key int64
	rapid.Check(t, func(rt *rapid.T) {
		var actors []*actor
		for range 3 {
			key++
			a := newActor(strconv.FormatInt(key, 10), key)
			a.every = rapid.IntRange(1, 64).Draw(rt, "every")
			actors = append(actors, a)
		}
		for range rapid.IntRange(1, 4).Draw(rt, "groups") {
			var group []*neuron.Record
			before := make([]*actor, len(actors))
			for i, a := range actors {
				before[i] = a.copy()
			}
			for range rapid.IntRange(1, 8).Draw(rt, "runs") {
				a := rapid.SampledFrom(actors).Draw(rt, "actor")
				st := step{
					payload: rapid.SampledFrom([]int{0, 0, 0, 100, 20_000}).Draw(rt, "payload"),
					sends:   rapid.SampledFrom([]int{0, 0, 1, 3, 60}).Draw(rt, "sends"),
					state:   rapid.SampledFrom([]string{"", "", "s", "tt"}).Draw(rt, "state"),
				}
				if st.sends < 60 {
					st.sendSize = rapid.SampledFrom([]int{0, 0, 100, 10_000}).Draw(rt, "send size")
				}
				st.steps = rapid.SampledFrom([]int{0, 0, 0, 1, 3}).Draw(rt, "steps")
				group = append(group, a.turns(rapid.SampledFrom([]int{1, 1, 3, 20}).Draw(rt, "turns"), st)...)
			}
			if rapid.IntRange(0, 4).Draw(rt, "fails") == 0 {
				// The last delivery once more: nothing of the group may stay.
				last := group[len(group)-1]
				twin := *last.Turn
				twin.Seq++
				bad := &neuron.Record{Neuron: last.Neuron, Key: last.Key, Turn: &twin}
				err := s.Commit(t.Context(), f, append(group[:len(group):len(group)], bad))
				wantRecordError(t, err, len(group), neuron.ErrDuplicate)
				actors = before
			} else {
				commit(t, s, f, group...)
			}
			for _, a := range actors {
				a.probe(rt, t, s)
			}
		}
	})
}

// probe compares the row, and one page of each feed that is drawn by lot.
func (a *actor) probe(rt *rapid.T, t *testing.T, s neuron.Store) {
	n, err := s.Neuron(t.Context(), a.id)
	if err != nil {
		rt.Fatalf("neuron: %v", err)
	}
	a.checkRow(rt, n)
	for _, f := range []neuron.Feed{neuron.In, neuron.Out} {
		all, _ := a.feed(f)
		after := rapid.Uint64Range(0, uint64(len(all))).Draw(rt, "after")
		limit := rapid.IntRange(0, 20).Draw(rt, "limit")
		p, err := s.Entries(t.Context(), a.id, f, after, limit)
		if err != nil {
			rt.Fatalf("entries: %v", err)
		}
		a.checkPage(rt, f, after, limit, p)
	}
}

// testReadersAndWriter: what readers see while commits go on is always of one moment.
func testReadersAndWriter(t *testing.T, e Engine) {
	// N-35
	s := open(t, e)
	f := claim(t, e, s)
	a := newActor("a", 1)
	commit(t, s, f, a.turn(step{sends: 1}))
	id, key := a.id, a.key
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			var last uint64
			for {
				select {
				case <-done:
					return
				default:
				}
				n, err := s.Neuron(t.Context(), id)
				if err != nil || n.InSeq < last || n.InSeq != n.OutSeq || n.Key != key {
					t.Errorf("neuron: in %d out %d after %d, %v", n.InSeq, n.OutSeq, last, err)
					return
				}
				last = n.InSeq
				for _, feed := range []neuron.Feed{neuron.In, neuron.Out} {
					p, err := s.Entries(t.Context(), id, feed, last-1, 30)
					if err == nil {
						err = oneMoment(p)
					}
					if err != nil || p.Last < last || len(p.Entries) == 0 {
						t.Errorf("feed %d after %d: last %d, %d entries, %v", feed, last-1, p.Last, len(p.Entries), err)
						return
					}
				}
			}
		})
	}
	for range 60 {
		commit(t, s, f, a.turns(20, step{sends: 1, payload: 500})...)
	}
	close(done)
	wg.Wait()
}

// oneMoment reports a page whose parts were not read together.
func oneMoment(p neuron.Page) error {
	var sum uint64
	for _, n := range p.Tallies {
		sum += n
	}
	if sum != p.Last {
		return fmt.Errorf("tallies add up to %d, last is %d", sum, p.Last)
	}
	if n := len(p.Seqs); n > 0 && (p.Seqs[n-1] > p.Last || p.Seqs[0] < p.First || p.Seqs[n-1]-p.Seqs[0] != uint64(n-1)) {
		return fmt.Errorf("entries %d to %d of %d to %d", p.Seqs[0], p.Seqs[n-1], p.First, p.Last)
	}
	return nil
}
