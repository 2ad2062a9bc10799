package doctor

import "testing"

// I-16: little room is told before a commit meets it.
func TestSpace(t *testing.T) {
	for free, want := range map[int64]grade{0: gradeFail, noSpace: gradeWarn, lowSpace: gradeOK} {
		if f := gradeSpace(free); f.Result != want {
			t.Errorf("%d bytes free: %+v", free, f)
		}
	}
}
