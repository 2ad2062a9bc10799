package recall

import (
	"fmt"
	"testing"
	"time"

	"soma/ident"
)

// N-20: the set holds the whole window at every moment, and is seldom wrong about what it does not hold.
func TestSetHoldsTheWindow(t *testing.T) {
	const window = 4096
	s := New(window)
	var ids []ident.ID
	for i := range 3*window + 7 {
		id := ident.Named("test", fmt.Sprint(i))
		switch i % 3 {
		case 1:
			id = ident.New(time.Now())
		case 2:
			id = ident.Derive(ids[i-1], "x")
		}
		s.Add(id)
		ids = append(ids, id)
		if i%977 != 0 && i%window > 1 {
			continue
		}
		for _, id := range ids[max(0, len(ids)-window):] {
			if !s.Has(id) {
				t.Fatalf("after %d ids one of the window is lost", i+1)
			}
		}
	}
	wrong := 0
	for i := range 10_000 {
		if s.Has(ident.Named("other", fmt.Sprint(i))) {
			wrong++
		}
	}
	if wrong > 500 {
		t.Errorf("%d of 10,000 other ids seem to be there", wrong)
	}
	if s.Has(ids[0]) && s.Has(ids[1]) && s.Has(ids[2]) && s.Has(ids[3]) {
		t.Error("nothing is ever forgotten")
	}
	(*Set)(nil).Add(ids[0])
}
