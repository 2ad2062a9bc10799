package process_test

import (
	"testing"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/process"
	"soma/wire"
)

// N-03: a dispatch carries on the cause of what made the process Ready, also when the daemon that saw that turn has died.
func TestDispatchHasItsCause(t *testing.T) {
	w := newWorld(t, map[string]string{"m": "name: m\nsteps: [{say: hm}]\n"}, withHost(func(o *process.Options) { o.MaxConcurrent = 1 }))
	release := w.stage.hold("m")
	first := w.open("s1", "m", false)
	w.admit("s1", "a", "x")
	w.await("a stream", func() bool { return len(w.stage.requests()) == 1 })
	second := w.open("s2", "m", false)
	w.admit("s2", "b", "y")
	w.awaitState(second, wire.Ready, "")
	w.kill()
	release()
	w.ended(first)
	w.ended(second)
	for _, pid := range []uint64{first, second} {
		page, err := w.engine.Read(t.Context(), neuron.ID{Owner: "me", Kind: process.ProcessKind, Key: ident.PID(pid).String()}, neuron.In, 0, 0)
		if err != nil || len(page.Entries) < 3 {
			t.Fatalf("%d entries, %v", len(page.Entries), err)
		}
		admit := page.Entries[0].ID
		for i, e := range page.Entries {
			if e.Correlation != admit || (i > 0) == e.Causation.IsZero() {
				t.Errorf("pid %d, entry %d (%s): correlation %s, causation %s; the input came with %s", pid, i, e.Alias, e.Correlation, e.Causation, admit)
			}
		}
	}
}
