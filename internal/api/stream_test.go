package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"soma/client"
	"soma/internal/api"
	"soma/wire"
)

// sse is one event of a stream, or a comment, as it came over the wire.
type sse struct{ kind, id, data, comment string }

// reader is a bare reader of a stream on a connection of its own.
type reader struct {
	t     *testing.T
	conn  net.Conn
	lines *bufio.Scanner
}

func (r *running) read(t *testing.T, path string, header ...string) *reader {
	t.Helper()
	conn, err := r.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: soma\r\n%s\r\n", path, good)
	for _, line := range header {
		fmt.Fprintf(conn, "%s\r\n", line)
	}
	fmt.Fprint(conn, "\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s: %d as %s", path, resp.StatusCode, resp.Header.Get("Content-Type"))
	}
	return &reader{t, conn, bufio.NewScanner(resp.Body)}
}

// next returns the next event or comment.
func (r *reader) next() sse {
	r.t.Helper()
	var e sse
	for r.lines.Scan() {
		line := r.lines.Text()
		if line == "" {
			if e == (sse{}) {
				continue
			}
			return e
		}
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "":
			e.comment = "comment " + value
		case "event":
			e.kind = value
		case "id":
			e.id = value
		case "data":
			e.data += value
		default:
			r.t.Fatalf("unknown line %q", line)
		}
	}
	r.t.Fatalf("the stream has ended: %v", r.lines.Err())
	return e
}

// event returns the next event that is no comment.
func (r *reader) event() sse {
	r.t.Helper()
	for {
		if e := r.next(); e.comment == "" {
			return e
		}
	}
}

// From every cursor, in each of its forms, exactly the rest comes, each event with its id, then what happens.
func TestReplayIsExactlyTheGap(t *testing.T) { // I-22
	r := start(t)
	r.open(t, "s")
	const last = 600 // more than two reads of rows
	r.note("s", last-1)
	for _, from := range []uint64{0, 1, 2, 255, 256, 257, 599, 600} {
		plain := fmt.Sprintf("/v1/sessions/s/events?after=%d", from)
		for name, in := range map[string]*reader{
			"query":  r.read(t, plain),
			"full":   r.read(t, fmt.Sprintf("/v1/sessions/s/events?after=g1.%d", from)),
			"header": r.read(t, "/v1/sessions/s/events?after=3", fmt.Sprintf("Last-Event-ID: g1.%d", from)),
		} {
			for seq := from + 1; seq <= last; seq++ {
				e := in.event()
				var body wire.Event
				if err := json.Unmarshal([]byte(e.data), &body); err != nil {
					t.Fatal(err)
				}
				if e.id != fmt.Sprintf("g1.%d", seq) || body.Seq != seq || e.kind != body.Kind {
					t.Fatalf("%s from %d: %+v where %d should be", name, from, e, seq)
				}
			}
		}
	}
	in := r.read(t, "/v1/sessions/s/events", "Last-Event-ID: g1.600")
	r.note("s", 1)
	if e := in.event(); e.id != "g1.601" {
		t.Fatalf("what happens: %+v", e)
	}
}

func TestReset(t *testing.T) { // I-22
	r := start(t)
	r.open(t, "s")
	r.note("s", 99)
	r.world.mu.Lock()
	r.world.first = 40
	r.world.mu.Unlock()
	for _, cursor := range []string{"g0.50", "g0.100", "g0.0", "g1.100000", "38", "g1.38", "g1.1", "", "0"} {
		in := r.read(t, "/v1/sessions/s/events?after="+cursor)
		e := in.event()
		var reset wire.ResetEvent
		if err := json.Unmarshal([]byte(e.data), &reset); err != nil {
			t.Fatal(err)
		}
		if e.kind != wire.Reset || reset.Generation != "g1" || reset.First != 40 || reset.Session.ID != "s" || reset.Last != reset.Session.LastEvent {
			t.Fatalf("cursor %q: %+v", cursor, e)
		}
		r.note("s", 1)
		if e := in.event(); e.id != fmt.Sprintf("g1.%d", reset.Last+1) {
			t.Fatalf("cursor %q, after the reset to %d: %+v", cursor, reset.Last, e)
		}
	}
	for _, cursor := range []string{"g1.39", "39"} { // the first kept one comes next
		if e := r.read(t, "/v1/sessions/s/events?after="+cursor).event(); e.id != "g1.40" {
			t.Errorf("cursor %q: %+v", cursor, e)
		}
	}
}

// Rows that go while a reader catches up are told by a reset, not skipped.
func TestResetWhileCatchingUp(t *testing.T) { // I-22
	r := start(t)
	r.open(t, "s")
	r.note("s", 999)
	reads := 0
	r.before(func(_ context.Context, method string) error {
		if method == "Events" {
			if reads++; reads == 2 {
				r.world.mu.Lock()
				r.world.first = 700
				r.world.mu.Unlock()
			}
		}
		return nil
	})
	in := r.read(t, "/v1/sessions/s/events")
	for seq := 1; ; seq++ {
		e := in.event()
		if e.kind == wire.Reset {
			if seq != 257 {
				t.Errorf("the reset came in place of %d", seq)
			}
			return
		}
		if e.id != fmt.Sprintf("g1.%d", seq) {
			t.Fatalf("%+v where %d or a reset should be", e, seq)
		}
	}
}

func TestLiveEventsAndHeartbeatsHaveNoID(t *testing.T) { // I-22
	r := start(t, func(s *api.Server) { s.SetHeartbeat(5 * time.Millisecond) })
	r.open(t, "s")
	in := r.read(t, "/v1/sessions/s/events?after=1")
	for range 3 { // the first is the opening line
		if e := in.next(); e.comment == "" || e.id != "" || e.data != "" {
			t.Fatalf("a heartbeat: %+v", e)
		}
	}
	r.live("s", wire.Delta, wire.DeltaEvent{PID: 1, Step: 1, Attempt: 2, Offset: 7, Text: "one\ntwo"})
	r.live("s", wire.CellOutput, wire.OutputEvent{Cell: "c", Offset: 3, Text: "x"})
	r.note("s", 1)
	delta, output, event := in.event(), in.event(), in.event()
	if delta.kind != wire.Delta || delta.id != "" || !strings.Contains(delta.data, `"attempt":2,"offset":7,"text":"one\ntwo"`) {
		t.Errorf("a delta: %+v", delta)
	}
	if output.kind != wire.CellOutput || output.id != "" {
		t.Errorf("output: %+v", output)
	}
	if event.id != "g1.2" {
		t.Errorf("an event: %+v", event)
	}
}

// What a subscription lost, left out or says twice is read from the rows, or left out.
func TestBackToTheRows(t *testing.T) { // I-22
	r := start(t)
	r.open(t, "s")
	in := r.read(t, "/v1/sessions/s/events")
	expect := func(what string, ids ...string) {
		t.Helper()
		for _, id := range ids {
			if e := in.event(); e.id != id {
				t.Fatalf("%s: %+v in place of %s", what, e, id)
			}
		}
	}
	expect("the start", "g1.1")
	r.quietly("s", 2)
	r.say("s", wire.Item{Dropped: true}, 0)
	expect("lost", "g1.2", "g1.3")
	r.quietly("s", 3)
	r.say("s", wire.Item{}, 6)
	expect("left out", "g1.4", "g1.5", "g1.6")
	r.say("s", wire.Item{}, 6)
	r.say("s", wire.Item{}, 2)
	r.note("s", 1)
	expect("said again", "g1.7")
}

// Readers that connect at any moment, each with a subscription that loses most of what it gets, see every event once and in
// order; and the committer never waits for them.
func TestNoGapUnderLoad(t *testing.T) { // I-22
	r := start(t)
	r.open(t, "s")
	r.world.mu.Lock()
	r.world.capacity = 2
	r.world.mu.Unlock()
	const last = 1500
	var wait sync.WaitGroup
	wait.Go(func() { r.note("s", last-1) })
	for i := range 6 {
		wait.Go(func() {
			var seq uint64
			_, err := r.client.Follow(t.Context(), "s", wire.Cursor{}, func(f client.Frame) error {
				if f.Event == nil || f.Event.Seq != seq+1 {
					return fmt.Errorf("%+v after %d", f, seq)
				}
				if seq++; seq == last {
					return client.ErrEnough
				}
				return nil
			})
			if err != nil {
				t.Errorf("reader %d: %v", i, err)
			}
		})
	}
	wait.Wait()
}

// Who does not read is cut off; with its cursor it comes back and has missed nothing.
func TestSlowReader(t *testing.T) { // I-22
	r := start(t, func(s *api.Server) { s.SetWriting(50 * time.Millisecond) })
	r.open(t, "s")
	in := r.read(t, "/v1/sessions/s/events")
	first := in.event()
	r.noteLong("s", 2000, 2000) // more than the socket takes; returns though nobody reads
	begun := time.Now()
	for r.subscriptions() > 0 { // until the server has given the reader up
		if time.Since(begun) > 20*time.Second {
			t.Fatal("the reader still has its stream")
		}
		if _, err := r.client.Models(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	seen := first.id
	for n := 2; in.lines.Scan(); {
		if id, ok := strings.CutPrefix(in.lines.Text(), "id: "); ok {
			if id != fmt.Sprintf("g1.%d", n) {
				t.Fatalf("%s where %d should be", id, n)
			}
			seen = id
			n++
		}
	}
	if seen == "g1.2001" {
		t.Fatal("the reader was not slow")
	}
	// The last line may have been cut; the event before it was whole.
	cursor, err := wire.ParseCursor(seen)
	if err != nil {
		t.Fatal(err)
	}
	cursor.Seq--
	next := cursor.Seq
	for err = client.ErrLost; errors.Is(err, client.ErrLost); { // it may be cut off again
		cursor, err = r.client.Follow(t.Context(), "s", cursor, func(f client.Frame) error {
			if next++; f.Event == nil || f.Event.Seq != next {
				return fmt.Errorf("%+v where %d should be", f, next)
			}
			if next == 2001 {
				return client.ErrEnough
			}
			return nil
		})
	}
	if err != nil {
		t.Error(err)
	}
}

func (w *world) subscriptions() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.subs)
}

// The daemon goes away in the middle; the client is told, and goes on from its cursor with the next daemon.
func TestFollowGoesOnAfterALoss(t *testing.T) { // I-22, I-24
	r := start(t)
	r.open(t, "s")
	r.note("s", 9)
	var seen []uint64
	at, err := r.client.Follow(t.Context(), "s", wire.Cursor{}, func(f client.Frame) error {
		seen = append(seen, f.Event.Seq)
		if f.Event.Seq == 10 {
			go r.stop()
		}
		return nil
	})
	var lost *client.LostError
	if !errors.Is(err, client.ErrLost) || !errors.As(err, &lost) || lost.Unsent {
		t.Fatalf("the daemon stopped: %v", err)
	}
	if at != (wire.Cursor{Generation: "g1", Seq: 10}) {
		t.Fatalf("the cursor is %s", at)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.Follow(t.Context(), "s", at, nil); !errors.As(err, &lost) || !lost.Unsent {
		t.Fatalf("without a daemon: %v", err)
	}
	next := startAt(t, r.world, r.socket)
	next.note("s", 5)
	_, err = r.client.Follow(t.Context(), "s", at, func(f client.Frame) error {
		seen = append(seen, f.Event.Seq)
		if f.Event.Seq == 15 {
			return client.ErrEnough
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, seq := range seen {
		if seq != uint64(i+1) {
			t.Fatalf("the events seen are %v", seen)
		}
	}
	if len(seen) != 15 {
		t.Errorf("the events seen are %v", seen)
	}
}

// The daemon-wide stream tells where sessions stand; what a slow reader lost is made good for every session.
func TestHints(t *testing.T) { // I-22
	r := start(t)
	at := map[string]uint64{}
	first := make(chan struct{})
	ended := make(chan error, 1)
	done := map[string]uint64{"a": 51, "b": 61, "c": 1}
	go func() {
		ended <- r.client.Hints(t.Context(), func(h wire.Hint) error {
			if len(at) == 0 {
				close(first)
			}
			at[h.Session] = max(at[h.Session], h.Seq)
			for id, seq := range done {
				if at[id] != seq {
					return nil
				}
			}
			return client.ErrEnough
		})
	}()
	for r.subscriptions() == 0 {
		if _, err := r.client.Models(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	r.open(t, "a")
	<-first
	r.open(t, "b")
	r.live("a", wire.Delta, wire.DeltaEvent{Text: "not for this stream"})
	r.world.mu.Lock() // the reader cannot take anything while this is held
	for range 50 {
		r.world.commit("a", 1, wire.ProcessState, wire.StateEvent{State: wire.State{State: wire.Running, Since: epoch}})
	}
	for range 60 {
		r.world.commit("b", 1, wire.ProcessState, wire.StateEvent{State: wire.State{State: wire.Running, Since: epoch}})
	}
	r.world.mu.Unlock()
	r.open(t, "c")
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("hints are missing")
	}
}

// A wait ends with the process, or after its time, and looks at the process three times at most in between.
func TestWait(t *testing.T) { // K-03, K-05
	r := start(t)
	r.open(t, "s")
	p, err := r.client.Wait(t.Context(), 1, 20*time.Millisecond)
	if err != nil || p.Ended() {
		t.Fatalf("a wait that is over: %+v, %v", p, err)
	}
	r.world.mu.Lock()
	r.world.looks = 0
	r.world.mu.Unlock()
	type result struct {
		p   wire.Process
		err error
	}
	ended := make(chan result, 1)
	go func() {
		p, err := r.client.Wait(t.Context(), 1, time.Minute)
		ended <- result{p, err}
	}()
	for r.subscriptions() == 0 {
		if _, err := r.client.Models(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	r.note("s", 30)
	r.world.mu.Lock()
	r.world.end(1, 3)
	r.world.mu.Unlock()
	select {
	case got := <-ended:
		if got.err != nil || !got.p.Ended() || *got.p.ExitCode != 3 {
			t.Errorf("the end: %+v, %v", got.p, got.err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the end was not heard")
	}
	r.world.mu.Lock()
	if r.world.looks > 3 {
		t.Errorf("looked %d times", r.world.looks)
	}
	r.world.mu.Unlock()
	if p, err := r.client.Wait(t.Context(), 1, time.Minute); err != nil || !p.Ended() {
		t.Errorf("a process that has ended: %+v, %v", p, err)
	}
}

// The end may come between the first look and the listening.
func TestWaitMissesNoEnd(t *testing.T) {
	r := start(t)
	r.open(t, "s")
	looks := 0
	r.before(func(_ context.Context, method string) error {
		if method == "Process" {
			if looks++; looks == 2 { // the first look has seen it alive
				r.world.mu.Lock()
				for s := range r.world.subs {
					s.session = "deaf"
				}
				r.world.end(1, 0)
				r.world.mu.Unlock()
			}
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if p, err := r.client.Wait(ctx, 1, time.Minute); err != nil || !p.Ended() {
		t.Errorf("%+v, %v", p, err)
	}

	r.before(nil)
	r.open(t, "lossy") // pid 2: its end is lost by the subscription
	r.world.mu.Lock()
	r.world.looks = 0
	r.world.mu.Unlock()
	ended := make(chan error, 1)
	go func() {
		p, err := r.client.Wait(ctx, 2, time.Minute)
		if err == nil && !p.Ended() {
			err = fmt.Errorf("it has not ended: %+v", p)
		}
		ended <- err
	}()
	for looks := 0; looks < 2; { // the second one comes after the listening has begun
		if _, err := r.client.Models(ctx); err != nil {
			t.Fatal(err)
		}
		r.world.mu.Lock()
		looks = r.world.looks
		r.world.mu.Unlock()
	}
	r.world.mu.Lock()
	r.world.mute = true
	r.world.end(2, 0)
	r.world.mute = false
	r.world.mu.Unlock()
	r.say("lossy", wire.Item{Dropped: true}, 0)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A stopping server answers what runs, cuts streams, and has ended when Serve returns.
func TestStop(t *testing.T) {
	r := start(t)
	r.open(t, "s")
	lost := make(chan error, 3)
	go func() {
		_, err := r.client.Follow(t.Context(), "s", wire.Cursor{}, func(client.Frame) error { return nil })
		lost <- err
	}()
	go func() { lost <- r.client.Hints(t.Context(), func(wire.Hint) error { return nil }) }()
	go func() {
		p, err := r.client.Wait(t.Context(), 1, time.Minute)
		if err == nil && !p.Ended() {
			err = client.ErrLost // as good: it is told that the wait is over
		}
		lost <- err
	}()
	for r.subscriptions() < 3 {
		if _, err := r.client.Models(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	conn, err := r.dial(t.Context()) // nothing is asked on it
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	begun := time.Now()
	r.before(func(ctx context.Context, method string) error {
		if method == "Status" { // stands for the answer of a stop: the server ends while it is given
			go r.stop()
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
			}
			return ctx.Err()
		}
		return nil
	})
	if _, err := r.client.Status(t.Context()); err != nil {
		t.Errorf("the answer that runs while the server stops: %v", err)
	}
	for range 3 {
		if err := <-lost; !errors.Is(err, client.ErrLost) {
			t.Errorf("a stream of a stopped server: %v", err)
		}
	}
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took > 4*time.Second {
		t.Errorf("the stop took %s", took)
	}
	if n := r.subscriptions(); n != 0 {
		t.Errorf("%d subscriptions are left", n)
	}
}
