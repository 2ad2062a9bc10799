package process

import (
	"context"
	"fmt"
	"testing"
	"time"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/process/recent"
	"soma/message"
)

type noReader struct{ t *testing.T }

func (r noReader) Query(context.Context, string, []any, func(func(...any) error) error) error {
	r.t.Error("a read of what is kept")
	return nil
}

// Histories are fed by commits, so that a step reads nothing; they stay within their bound, and longest unused ones go first.
func TestHistories(t *testing.T) {
	var hs histories
	h := &Host{o: Options{Reader: noReader{t}}}
	branches := make([]ident.ID, 10)
	for i := range branches {
		branches[i] = ident.New(time.Now())
		for seq := range uint64(4) {
			hs.committed(&insertMessage{branch: branches[i], seq: seq + 1, said: message.Message{Text: fmt.Sprint(i, seq)}, size: maxHistoryBytes / 30})
		}
	}
	if hs.bytes > maxHistoryBytes || len(hs.kept) != hs.order.Len() || len(hs.kept) != 7 {
		t.Errorf("%d bytes, %d branches, %d in order", hs.bytes, len(hs.kept), hs.order.Len())
	}
	if hs.kept[branches[0]] != nil || hs.kept[branches[9]] == nil {
		t.Error("not the longest unused one went")
	}
	got, err := hs.through(t.Context(), h, branches[9], 3)
	if err != nil || len(got) != 3 || got[2].Text != "9 2" || cap(got) != 3 {
		t.Errorf("%v, %v", got, err)
	}
	// What does not follow on what is kept changes nothing.
	for _, seq := range []uint64{3, 4, 7} {
		hs.committed(&insertMessage{branch: branches[9], seq: seq, said: message.Message{Text: "other"}})
	}
	hs.committed(&insertMessage{branch: branches[0], seq: 5})
	if got, _ := hs.through(t.Context(), h, branches[9], 4); len(got) != 4 || got[3].Text != "9 3" {
		t.Errorf("%v", got)
	}
	for _, b := range branches {
		hs.forget(b)
	}
	if hs.bytes != 0 || len(hs.kept) != 0 || hs.order.Len() != 0 {
		t.Errorf("%d bytes, %d branches are left", hs.bytes, len(hs.kept))
	}
}

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
