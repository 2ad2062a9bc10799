package flow_test

import (
	"context"
	"fmt"
	"testing"

	"soma/session"
	"soma/session/flow"
)

// S-58
func TestStream(t *testing.T) {
	var b flow.Builder
	b.Add(does("a", 1)).Add(fails("b"), "a").Add(does("c", 3), "b").Add(does("d", 4)).Edge("a", "d", flow.If(flow.Failed))
	s := newSession(t)
	var ended []string
	stream := flow.Stream(t.Context(), s, build(t, &b), flow.Options{Concurrency: 1})
	for range 2 { // each time anew
		ended = nil
		for o, err := range stream {
			ok(t, err)
			ended = append(ended, fmt.Sprint(o.Node, ":", o.State, ":", o.Result, ":", o.Err))
		}
		is(t, "ended", ended, "[a:completed:1:<nil> b:failed:<nil>:b: of the test d:skipped:<nil>:<nil> c:completed:3:<nil>]")
	}
	none := 0
	for _, err := range flow.Stream(t.Context(), s, build(t, &b), flow.Options{Concurrency: -1}) {
		wants(t, err, session.ErrInvalid)
		none++
	}
	is(t, "events of a start that is refused", none, 1)
}

// S-58: who reads hears of an end while others run.
func TestStreamWhileRunning(t *testing.T) {
	begun, leave := make(chan string, 9), make(chan struct{})
	var b flow.Builder
	b.Add(does("quick", 1)).Add(blocks("slow", begun, leave))
	var ended []string
	for o, err := range flow.Stream(t.Context(), newSession(t), build(t, &b), flow.Options{}) {
		ok(t, err)
		ended = append(ended, o.Node)
		if o.Node == "quick" {
			close(leave)
		}
	}
	is(t, "ended", ended, "[quick slow]")
}

// S-58: who stops early cancels the rest and waits for what runs.
func TestStreamStopped(t *testing.T) {
	begun := make(chan string, 9)
	var b flow.Builder
	left := false
	b.Add(does("first", 1))
	b.Add(flow.Node{ID: "runs", Do: func(ctx context.Context, _ flow.In) (any, error) {
		begun <- "runs"
		<-ctx.Done()
		left = true
		return nil, ctx.Err()
	}}).Add(does("later", 1), "runs")
	s := newSession(t)
	for o, err := range flow.Stream(t.Context(), s, build(t, &b), flow.Options{}) {
		ok(t, err)
		is(t, "the first", o.Node, "first")
		<-begun
		break
	}
	is(t, "what ran has left", left, true)
	is(t, "told", of(notices(s), "runs")+", "+of(notices(s), "later"), "queued started cancelled, queued cancelled")

	// The end of the context comes last.
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var last error
	n := 0
	for o, err := range flow.Stream(ctx, s, build(t, &b), flow.Options{}) {
		if o.Node == "first" {
			<-begun
			cancel(errTest)
		}
		last = err
		n++
	}
	wants(t, last, errTest)
	is(t, "events", n, 4)
}
