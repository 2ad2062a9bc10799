package api_test

import (
	"errors"
	"fmt"
	"testing"

	"soma/client"
	"soma/internal/api"
	"soma/wire"
)

// A daemon that is asked to stop says so at the end of its streams, after all that they had; one that ends for another
// reason does not, and its readers take it for lost.
func TestStreamsTellAStop(t *testing.T) { // I-16, I-22
	for why, want := range map[error]error{
		fmt.Errorf("%w: by a signal", api.ErrAsked): client.ErrStopped,
		errors.New("the disk is full"):              client.ErrLost,
	} {
		r := start(t)
		r.open(t, "s")
		raw := r.read(t, "/v1/sessions/s/events?after=1")
		ends := make(chan error, 2)
		go func() {
			seen := 0
			at, err := r.client.Follow(t.Context(), "s", wire.Cursor{}, func(client.Frame) error { seen++; return nil })
			if seen != 1 || at.Seq != 1 {
				err = fmt.Errorf("%d frames up to %d: %w", seen, at.Seq, err)
			}
			ends <- err
		}()
		go func() { ends <- r.client.Hints(t.Context(), func(wire.Hint) error { return nil }) }()
		for r.subscriptions() < 3 {
			if _, err := r.client.Models(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.endFor(why); err != nil {
			t.Error(err)
		}
		for range 2 {
			if err := <-ends; !errors.Is(err, want) {
				t.Errorf("%v: a stream ended with %v, want %v", why, err, want)
			}
		}
		if want == client.ErrStopped {
			e := raw.event()
			if err := spec(t).CheckEvent("/v1/sessions/{session}/events", e.kind, e.id, []byte(e.data)); err != nil || e.kind != wire.DaemonStopping {
				t.Errorf("the last event is %+v (%v)", e, err)
			}
		}
	}
}
