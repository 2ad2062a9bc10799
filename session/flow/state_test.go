package flow

import "testing"

// S-53, S-56: the tables say what can happen: final states have no way out, all others have ways to the ends that they need.
func TestStates(t *testing.T) {
	for s := waiting; s <= Cancelled; s++ {
		if s.final() != (steps[s] == nil) {
			t.Errorf("%s: final %v, steps %v", s, s.final(), steps[s])
		}
		if !s.final() && steps[s][cancel] != Cancelled {
			t.Errorf("%s cannot be cancelled", s)
		}
		var again State
		text, _ := s.MarshalText()
		if err := again.UnmarshalText(text); err != nil || again != s {
			t.Errorf("%s is read as %s: %v", s, again, err)
		}
		for e := freed; e <= cancel; e++ {
			next, known := steps[s][e]
			func() {
				defer func() {
					if known == (recover() != nil) {
						t.Errorf("%s, step %d: in the table %v", s, e, known)
					}
				}()
				if s.next(e) != next {
					t.Errorf("%s, step %d leads elsewhere", s, e)
				}
			}()
		}
	}
	for state, e := range ends {
		if running.next(e) != state {
			t.Errorf("step %d does not lead from running to %s", e, state)
		}
	}
	if _, ok := over.next(toCancel); ok || len(phases[over]) > 0 {
		t.Error("a flow that is over goes on")
	}
	for _, o := range []order{toPause, toResume, toCancel} {
		if _, ok := cancelling.next(o); ok {
			t.Errorf("a flow that is being cancelled takes order %d", o)
		}
	}
}
