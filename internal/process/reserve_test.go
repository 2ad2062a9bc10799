package process_test

import (
	"testing"

	"soma/wire"
)

// K-23, K-24: an attempt has the estimate of its cost in the commit that starts it, as soon as it is known who answers at which
// price; it is settled by the ledger row of the true cost, and nothing of the estimate stays.
func TestReservation(t *testing.T) {
	w := newWorld(t, map[string]string{"m": priced})
	w.stage.names["m"] = [2]string{"openai", "gpt-4o-mini"}
	pid := w.open("s", "m", true)
	w.admit("s", "a", "x")
	w.awaitEvent("s", wire.TurnEnded, 1, nil)
	release := w.stage.hold("m")
	w.admit("s", "b", "y")
	w.await("a stream", func() bool { return w.stage.streaming() == 1 })
	// 1,000 tokens of output at 0.60 dollars for a million, and what the few messages cost
	if n := w.one(`select estimate from execution`); n < 600_000 || n > 610_000 {
		t.Errorf("reserved %d nano-dollars", n)
	}
	if n := len(w.ledger(pid)); n != 2 {
		t.Errorf("%d ledger rows before the end", n)
	}
	release()
	w.awaitEvent("s", wire.TurnEnded, 2, nil)
	rows := w.ledger(pid)
	if len(rows) != 3 || rows[2].Cost == nil || *rows[2].Cost != 10*150+1*600 || rows[2].Usage.Estimated {
		t.Errorf("ledger %+v", rows)
	}
	if n := w.one(`select count(*) from execution`); n != 0 {
		t.Errorf("%d reservations are left", n)
	}
}
