package exchange

import "testing"

// S-46: who has finished never works again; everybody else can be woken up, and can finish.
func TestStates(t *testing.T) {
	for _, e := range []event{done, finished, wakeup, called} {
		if next, ok := Finished.next(e); ok && next != Finished {
			t.Errorf("event %d leads from finished to %s", e, next)
		}
	}
	for _, s := range []State{Working, Done} {
		for e, want := range map[event]State{done: Done, finished: Finished, wakeup: Working, called: Working} {
			if next, ok := s.next(e); !ok || next != want {
				t.Errorf("event %d leads from %s to %s, want %s", e, s, next, want)
			}
		}
	}
	if text := State(9).String(); text != "state 9" {
		t.Errorf("a state that is none is %q", text)
	}
}
