package process

import (
	"fmt"
	"testing"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/process/recent"
)

// Rule 1: a process has the place of its session, known before its row is, read where it is not remembered.
func TestPlaces(t *testing.T) {
	reads := 0
	p := places{known: recent.New[string, neuron.Place](2), find: func(pid ident.PID) (string, error) {
		reads++
		if pid > 100 {
			return "", nil
		}
		return fmt.Sprint("s", pid), nil
	}}
	for range 2 {
		for pid := ident.PID(1); pid <= 2; pid++ {
			if got := p.of(processID("me", pid)); got != neuron.PlaceOf(fmt.Sprint("s", pid)) {
				t.Errorf("place of %d: %v", pid, got)
			}
		}
	}
	if reads != 2 {
		t.Errorf("%d reads", reads)
	}
	p.put(200, neuron.PlaceOf("early"))
	if got := p.of(processID("me", 200)); got != neuron.PlaceOf("early") || reads != 2 {
		t.Errorf("place %v, %d reads", got, reads)
	}
	if got := p.of(processID("me", 101)); got != neuron.PlaceOf("101") {
		t.Errorf("place without a row: %v", got)
	}
	for pid := range ident.PID(50) {
		p.of(processID("me", pid+1))
	}
	before := reads
	for pid := range ident.PID(50) {
		p.of(processID("me", pid+1))
	}
	if n := reads - before; n < 46 {
		t.Errorf("%d of 50 places are remembered", 50-n)
	}
}
