package engine

import (
	"fmt"
	"testing"
	"time"

	"soma/ident"
)

// N-20: the set holds the whole window at every moment, and is seldom wrong about what it does not hold.
func TestSeenHoldsTheWindow(t *testing.T) {
	const window = 4096
	s := &seen{window: window}
	var ids []ident.ID
	for i := range 3*window + 7 {
		id := ident.Named("test", fmt.Sprint(i))
		switch i % 3 {
		case 1:
			id = ident.New(time.Now())
		case 2:
			id = ident.Derive(ids[i-1], "x")
		}
		s.add(id)
		ids = append(ids, id)
		if i%977 != 0 && i%window > 1 {
			continue
		}
		for _, id := range ids[max(0, len(ids)-window):] {
			if !s.has(id) {
				t.Fatalf("after %d ids one of the window is lost", i+1)
			}
		}
	}
	wrong := 0
	for i := range 10_000 {
		if s.has(ident.Named("other", fmt.Sprint(i))) {
			wrong++
		}
	}
	if wrong > 500 {
		t.Errorf("%d of 10,000 other ids seem to be there", wrong)
	}
	if s.has(ids[0]) && s.has(ids[1]) && s.has(ids[2]) && s.has(ids[3]) {
		t.Error("nothing is ever forgotten")
	}
	(*seen)(nil).add(ids[0])
}
