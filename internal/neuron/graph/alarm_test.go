package graph_test

import (
	"testing"
	"testing/synctest"
	"time"

	"soma/internal/neuron/engine"
	"soma/internal/neuron/graph"
)

// N-23: without a restart the alarm of the graph removes a connection at its expiry and not before; one whose expiry was
// moved lives on, and connections that expire together go together.
func TestAlarmRemovesInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, graph.Options{})
		w.set(time.Time{}) // the bubble's clock
		began := time.Now()
		first, second, moved := wire(), wire(), wire()
		first.Expires, second.Expires, moved.Expires = began.Add(2*time.Hour), began.Add(2*time.Hour), began.Add(time.Hour)
		for _, c := range []graph.Connect{first, second, moved} {
			w.must(w.connect(c))
		}
		moved.Expires = time.Time{}
		w.must(w.connect(moved))
		left := func(at time.Duration, want int) {
			t.Helper()
			<-time.After(time.Until(began.Add(at)))
			synctest.Wait()
			if n := len(w.rows()); n != want {
				t.Errorf("after %s there are %d connections, want %d", at, n, want)
			}
		}
		left(2*time.Hour-time.Second, 3)
		left(2*time.Hour+time.Second, 1)
		w.must(engine.Fire(t.Context(), w.Engine, graph.ID("me"), graph.DisconnectType, graph.Disconnect{ID: moved.ID}))
		w.quiet()
		if s := w.Stats(); s.Outbox != 0 {
			t.Errorf("%d alarms are left over", s.Outbox)
		}
	})
}
