package process

import (
	"fmt"
	"testing"

	"soma/ident"
	"soma/internal/neuron"
)

// M-12: concurrency is per daemon: of two on one database each gives out as many slots as it may, whatever the other does.
func TestSlotsAreOfADaemon(t *testing.T) {
	s := newShelf(t)
	hosts := []*Host{s.host("one"), s.host("two")}
	places := make([]neuron.PlaceSet, len(hosts))
	queued := make([]int, len(hosts))
	var pid ident.PID
	for i := 0; queued[0] < 3 || queued[1] < 3; i++ {
		session := fmt.Sprint("s", i)
		place := neuron.PlaceOf(session)
		of := int(place) % len(hosts)
		if queued[of] == 3 {
			continue
		}
		pid++
		s.put(t, pid, session)
		places[of].Add(place)
		queued[of]++
	}
	taken := map[ident.PID]bool{}
	for i, h := range hosts {
		if err := h.Gain(t.Context(), places[i]); err != nil {
			t.Fatal(err)
		}
		slots := 0
		for d := h.slots.queue.Next(); d.PID != 0; d = h.slots.queue.Next() {
			if slots++; taken[d.PID] {
				t.Errorf("process %d has a slot at both", d.PID)
			}
			taken[d.PID] = true
		}
		if slots != h.o.MaxConcurrent {
			t.Errorf("daemon %d gave out %d slots, want %d", i, slots, h.o.MaxConcurrent)
		}
	}
}
