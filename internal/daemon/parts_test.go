package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"soma/internal/config"
	"soma/internal/neuron"
	"soma/wire"
)

// I-22: a listener gets the events of its session in order and live ones between them; what it does not take in time it loses
// and is told, and nobody waits for it.
func TestSlowListener(t *testing.T) {
	e := newEvents()
	s, all := e.subscribe("s"), e.subscribe("")
	defer all.Close()
	e.publish(wire.Event{Session: "other", Seq: 1})
	e.live("other", wire.Delta, wire.DeltaEvent{Text: "not mine"})
	e.live("s", wire.Delta, wire.DeltaEvent{Text: "x"})
	for seq := range uint64(waitingItems + 10) {
		e.publish(wire.Event{Session: "s", Seq: seq + 1})
	}
	if it, err := s.Next(t.Context()); err != nil || it.Live == nil || it.Live.Kind != wire.Delta {
		t.Errorf("first %+v, %v", it, err)
	}
	for seq := range uint64(waitingItems - 1) {
		if it, err := s.Next(t.Context()); err != nil || it.Event == nil || it.Event.Seq != seq+1 {
			t.Fatalf("item %d: %+v, %v", seq, it, err)
		}
	}
	if it, err := s.Next(t.Context()); err != nil || !it.Dropped {
		t.Errorf("after the bound: %+v, %v", it, err)
	}
	e.publish(wire.Event{Session: "s", Seq: 5000})
	if it, err := s.Next(t.Context()); err != nil || it.Event == nil || it.Event.Seq != 5000 {
		t.Errorf("afterwards: %+v, %v", it, err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("cause")
	cancel(cause)
	if _, err := s.Next(ctx); !errors.Is(err, cause) {
		t.Errorf("at the end of its context: %v", err)
	}
	if it, err := all.Next(t.Context()); err != nil || it.Event == nil || it.Event.Session != "other" {
		t.Errorf("the listener to all gets %+v, %v", it, err)
	}
	s.Close()
	if len(e.subs["s"]) != 0 || len(e.subs[""]) != 1 {
		t.Error("a closed listener stays")
	}
}

// A python kernel's environment is an allow-list: no provider key, no token, only what the person named besides.
// I-53
func TestPykernelEnvironment(t *testing.T) {
	d := &daemon{config: &config.Config{KernelEnv: []string{"MINE"}}, o: Options{Environ: func() []string {
		return []string{"HOME=/h", "PATH=/bin", "LC_ALL=C", "LCX=1", "OPENAI_API_KEY=secret", "ANTHROPIC_API_KEY=secret", "SOMA_HOME=/s",
			"MINE=1", "MINE_TOO=2", "LD_PRELOAD=x", "PYTHONPATH=y", "VIRTUAL_ENV=/v", "HOMEX=1"}
	}}}
	want := []string{"HOME=/h", "PATH=/bin", "LC_ALL=C", "MINE=1", "VIRTUAL_ENV=/v"}
	if got := d.pykernelEnv(); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}

// N-33: a request that meets the failure of the store is one to try again: the daemon ends, and another one or its next start answers.
func TestRequestMeetsTheFailureOfTheStore(t *testing.T) {
	err := fmt.Errorf("cannot commit: %w: no space left", neuron.ErrStoreFailed)
	if e := refusal(err); e == nil || e.Code != wire.Unavailable || strings.Contains(e.Title+e.Detail, "space") {
		t.Errorf("refused with %+v", e)
	}
	if e := refusal(errors.New("cannot think")); e != nil {
		t.Errorf("any failure is refused with %+v", e)
	}
}
