package api_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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

// A stop does not wait for those who do not read what they asked for.
func TestStopWithReadersThatDoNotRead(t *testing.T) { // I-16, I-22
	r := start(t)
	r.open(t, "s")
	r.noteLong("s", 600, 20_000) // more than what fits between two sockets
	reading := make(chan struct{})
	r.before(func(_ context.Context, method string) error {
		if method == "Events" {
			close(reading)
			r.before(nil)
		}
		return nil
	})
	r.read(t, "/v1/sessions/s/events")
	<-reading
	conn, err := r.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ask := "GET /v1/openapi.yaml HTTP/1.1\r\nHost: soma\r\n" + good + "\r\n\r\n"
	if _, err := io.WriteString(conn, strings.Repeat(ask, 400)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if err := r.endFor(api.ErrAsked); err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took > 3*time.Second {
		t.Errorf("the stop took %s", took)
	}
}

// A token that is not valid any more opens nothing, and what it has opened ends and says so: at the next heartbeat, and
// before older events are read.
func TestStreamsEndWithTheirToken(t *testing.T) { // I-50, I-22
	var revoked atomic.Bool
	r := start(t, func(s *api.Server) {
		s.SetHeartbeat(5 * time.Millisecond)
		s.Authorize = func(token string) api.Access {
			if revoked.Load() {
				return api.Nobody
			}
			return authorize(token)
		}
	})
	r.open(t, "s")
	idle := r.read(t, "/v1/sessions/s/events?after=1")
	ends := make(chan error, 2)
	go func() {
		_, err := r.client.Follow(t.Context(), "s", wire.Cursor{}, func(client.Frame) error { return nil })
		ends <- err
	}()
	go func() { ends <- r.client.Hints(t.Context(), func(wire.Hint) error { return nil }) }()
	for r.subscriptions() < 3 {
		if _, err := r.client.Models(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	revoked.Store(true)
	for range 2 {
		var refusal *wire.Error
		if err := <-ends; !errors.As(err, &refusal) || refusal.Code != wire.Unauthorized {
			t.Errorf("a stream ended with %v", err)
		}
	}
	e := idle.event()
	if err := spec(t).CheckEvent("/v1/sessions/{session}/events", e.kind, e.id, []byte(e.data)); err != nil || e.kind != wire.StreamRefused {
		t.Errorf("the last event is %+v (%v)", e, err)
	}
	if idle.lines.Scan() && idle.lines.Text() != "" {
		t.Errorf("after it comes %q", idle.lines.Text())
	}

	revoked.Store(false)
	r.quietly("s", 599)
	var once sync.Once
	r.before(func(_ context.Context, method string) error {
		if method == "Events" {
			once.Do(func() { revoked.Store(true) })
		}
		return nil
	})
	behind := r.read(t, "/v1/sessions/s/events")
	for seq := 1; ; seq++ {
		if e := behind.event(); e.kind == wire.StreamRefused {
			if seq != 257 {
				t.Errorf("the stream ended in place of event %d", seq)
			}
			return
		}
	}
}
