//go:build !crash

package crash

import (
	"testing"
)

func TestPointsDoNothingInANormalBuild(t *testing.T) {
	t.Setenv("SOMA_CRASH", string(CellMid))
	t.Setenv("SOMA_FAULT", string(DedupeOff))
	for _, n := range Names() {
		Point(n)
	}
	for _, f := range Faults() {
		if Off(f) {
			t.Errorf("fault %s is on in a normal build", f)
		}
	}
	if n := testing.AllocsPerRun(100, func() { Point(CellMid) }); n != 0 {
		t.Errorf("a point allocates %v times in a normal build", n)
	}
}
