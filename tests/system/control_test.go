//go:build crash

package system_test

import (
	"strings"
	"testing"

	"soma/internal/crash"
)

// The suite sees it when a safeguard is missing: with each fault the trials that it concerns fail, and for the right reason.
// N-33, M-14
func TestSafeguardsAreSeen(t *testing.T) {
	bin := build(t)
	calm, err := trial{}.run(t, bin)
	if err != nil {
		t.Fatalf("undisturbed: %v", err)
	}
	// What was let out too early is lost by a death in the commit that it waited for: which commit that is may vary a little.
	for fault, c := range map[crash.Fault]struct {
		trials []trial
		why    string // what the check that failed says
	}{
		// A row of the outbox is deleted in a later commit than that of its turn: the death between them repeats it.
		crash.DedupeOff:   {anyCommit(calm, 16, 99), "a delivery was handled twice"},
		crash.StartedOff:  {[]trial{{point: crash.DispatchCommitted, at: 1}, {point: crash.StreamMid, at: 2}}, "running without an execution"},
		crash.EarlyAnswer: {[]trial{{point: crash.AdmitBeforeCommit, at: 1}}, "input task was answered and is lost"},
		crash.EarlyEvent:  {anyCommit(calm, 4, 6), "was shown and is not committed"},
		crash.EarlyFrame:  {anyCommit(calm, 8, 14), "was started"},
	} {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			for _, tr := range c.trials {
				tr.fault = fault
				res, err := tr.run(t, bin)
				t.Logf("%s: %d deaths, %v", tr.name(), res.deaths, err)
				if err != nil && strings.Contains(err.Error(), c.why) {
					return
				}
			}
			t.Errorf("no trial says %q", c.why)
		})
	}
}

// anyCommit are trials that die in the middle of the commits from first to last.
func anyCommit(calm result, first, last int) []trial {
	var all []trial
	for at := first; at <= min(last, calm.passed[string(crash.GroupMid)]); at++ {
		all = append(all, trial{point: crash.GroupMid, at: at})
	}
	return all
}
