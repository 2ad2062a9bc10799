//go:build crash

package system_test

import "testing"

func TestCrashPoints(t *testing.T) {
	bin := build(t)
	res, err := trial{}.run(t, bin)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range res.first.entries {
		t.Logf("%s %q %s %s %s", e.Role, e.Text, e.Tool, e.Arguments, e.Result)
	}
	t.Log(res.passed)
}
