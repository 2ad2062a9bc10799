package flow_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"go.uber.org/goleak"

	"soma/session"
	"soma/session/flow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errTest = errors.New("of the test")

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wants(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("the error is %v, want %v", err, want)
	}
}

// is compares what is printed.
func is(t *testing.T, what string, got, want any) {
	t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		t.Fatalf("%s: %s, want %s", what, g, w)
	}
}

func newSession(t *testing.T) *session.Session {
	t.Helper()
	s, err := session.New(session.Options{Log: slog.New(slog.DiscardHandler)})
	ok(t, err)
	return s
}

func build(t *testing.T, b *flow.Builder) *flow.Graph {
	t.Helper()
	g, err := b.Build()
	ok(t, err)
	return g
}

// run works a flow through.
func run(t *testing.T, b *flow.Builder, o flow.Options) *flow.Result {
	t.Helper()
	r, err := flow.Run(t.Context(), newSession(t), build(t, b), o)
	ok(t, err)
	return r
}

// does makes a node that returns a value.
func does(id string, result any) flow.Node {
	return flow.Node{ID: id, Do: func(context.Context, flow.In) (any, error) { return result, nil }}
}

// fails makes a node that fails.
func fails(id string) flow.Node {
	return flow.Node{ID: id, Do: func(context.Context, flow.In) (any, error) { return nil, fmt.Errorf("%s: %w", id, errTest) }}
}

// S-50
func TestFlow(t *testing.T) {
	var b flow.Builder
	b.Add(does("one", 1)).Add(does("two", 2), "one").Add(does("three", 3), "one")
	b.Aggregate(flow.Node{ID: "all"}, "two", "three", "one")
	r := run(t, &b, flow.Options{Concurrency: 1})
	is(t, "completed", r.Completed, "[one two three all]")
	is(t, "gathered", r.Results["all"], "[2 3 1]")
	is(t, "others", len(r.Failed)+len(r.Skipped)+len(r.Cancelled), 0)
}
