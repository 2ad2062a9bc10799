package process_test

import (
	"strings"
	"testing"

	"soma/wire"
)

const greet = `
name: greet
steps:
  - say: 'You said {{.Input}}.'
  - say: 'And then {{index .Inputs 1}}.'
  - say: 'Third {{len .Inputs}}.'
`

// M-01, M-05, K-03, K-07: an input goes through one dispatch and one answer, and a process that runs to its end ends with 0.
func TestOneInput(t *testing.T) {
	w := newWorld(t, map[string]string{"greet": greet})
	pid := w.open("s", "greet", false)
	st := w.admit("s", "i1", "hello")
	if st.PID != pid || st.ClientID != "i1" || st.Mode != wire.Steer {
		t.Errorf("input %+v", st)
	}
	p := w.ended(pid)
	if p.ExitCode == nil || *p.ExitCode != 0 || p.Reason != "finished" || p.Steps != 1 || p.Cells != 0 {
		t.Errorf("process %+v", p)
	}
	if got := w.told(pid); got != "user: hello\nassistant: You said hello.\n" {
		t.Errorf("transcript %q", got)
	}
	var kinds []string
	for _, e := range w.events {
		kinds = append(kinds, e.Kind)
	}
	want := "session.opened process.spawned input.admitted process.state step.started step.ended turn.ended process.ended"
	if got := strings.Join(kinds, " "); got != want {
		t.Errorf("events %s", got)
	}
}
