package supervise_test

import (
	"testing"

	"soma/internal/pykernel/pykerneltest"
)

// P-047: of jobs elsewhere that are not named the counts are known.
func TestJobsThatAreNotNamed(t *testing.T) {
	h := pykerneltest.New(t, probed)
	kernel, cell := h.Open("a", "probe.start('j1', 'sleep', '30')\nprobe.api.send('jobs', {'live': 3, 'awaited': 2, 'items': []})")
	h.Outcome(cell)
	if o := live(h, kernel, 4); o.Awaited != 3 || len(o.Jobs) != 1 || o.Jobs[0].ID != "j1" {
		t.Errorf("observed %+v", o)
	}
}
