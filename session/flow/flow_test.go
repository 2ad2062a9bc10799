package flow_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"soma/ident"
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

// notices are the signals of nodes that the session has seen, such as "queued a", in order.
func notices(s *session.Session) []string {
	var all []string
	for _, e := range s.Observer().History() {
		if kind, found := strings.CutPrefix(e.Kind(), "Node"); found {
			all = append(all, strings.ToLower(kind)+" "+e.Signal.Meta().Op)
		}
	}
	return all
}

// of are the notices of one node.
func of(all []string, node string) string {
	var mine []string
	for _, n := range all {
		if kind, found := strings.CutSuffix(n, " "+node); found {
			mine = append(mine, kind)
		}
	}
	return strings.Join(mine, " ")
}

// once fails if a node is not announced first and ended last, each once.
func once(t fataler, s *session.Session, r *flow.Result) {
	all := notices(s)
	state := map[string]string{}
	for name, list := range map[string][]string{"completed": r.Completed, "failed": r.Failed, "skipped": r.Skipped, "cancelled": r.Cancelled} {
		for _, node := range list {
			if state[node] != "" {
				t.Fatalf("node %s is %s and %s", node, state[node], name)
			}
			state[node] = name
		}
	}
	seen := map[string][]string{}
	for _, n := range all {
		kind, node, _ := strings.Cut(n, " ")
		seen[node] = append(seen[node], kind)
	}
	if len(seen) != len(state) {
		t.Fatalf("%d nodes are told of, %d have ended", len(seen), len(state))
	}
	for node, kinds := range seen {
		if kinds[0] == "spawned" {
			kinds = kinds[1:]
		}
		last := len(kinds) - 1
		if last < 1 || kinds[0] != "queued" || kinds[last] != state[node] {
			t.Fatalf("node %s is %s, told %v", node, state[node], kinds)
		}
		if kinds[last] == "completed" && slices.Contains(kinds, "started") && kinds[last-1] != "started" {
			t.Fatalf("node %s is told of in another order: %v", node, kinds)
		}
		for _, k := range kinds[1:last] {
			if k != "started" && k != "paused" && k != "escalated" {
				t.Fatalf("node %s: %v", node, kinds)
			}
		}
	}
}

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// S-50
func TestFlow(t *testing.T) {
	var b flow.Builder
	b.Add(does("one", 1)).Add(does("two", 2), "one").Add(does("three", 3), "one")
	b.Aggregate(flow.Node{ID: "all"}, "two", "three", "one")
	s := newSession(t)
	g := build(t, &b)
	is(t, "nodes", g.Len(), 4)
	for range 2 { // a graph may be run again
		r, err := flow.Run(t.Context(), s, g, flow.Options{Concurrency: 1})
		ok(t, err)
		is(t, "completed", r.Completed, "[one two three all]")
		is(t, "gathered", r.Results["all"], "[2 3 1]")
		is(t, "others", len(r.Failed)+len(r.Skipped)+len(r.Cancelled), 0)
	}
	empty, err := flow.Run(t.Context(), s, build(t, &flow.Builder{}), flow.Options{})
	ok(t, err)
	is(t, "an empty flow", len(empty.Completed), 0)
}

// S-50: an aggregation without a function takes what has completed, one with a function sees how all have ended.
func TestAggregate(t *testing.T) {
	var b flow.Builder
	b.Add(does("one", 1)).Add(fails("two")).Add(does("three", 3))
	b.Aggregate(flow.Node{ID: "list"}, "three", "two", "one")
	b.Aggregate(flow.Node{ID: "count", Do: func(_ context.Context, in flow.In) (any, error) {
		failed, _ := in.Result("two")
		_, known := in.Result("list")
		return fmt.Sprint(len(in.Before), failed.State, failed.Err, known), nil
	}}, "one", "two", "one")
	r := run(t, &b, flow.Options{})
	is(t, "list", r.Results["list"], "[3 1]")
	is(t, "count", r.Results["count"], "2 failed two: of the test false")
}

type broken struct{}

func (*broken) Check() error { panic("no check") }

func (*broken) Holds(context.Context, flow.Passage) (bool, error) { return true, nil }

// S-50: what is wrong with a graph is said before anything starts.
func TestBuildRefuses(t *testing.T) {
	node := func(id string) flow.Node { return does(id, nil) }
	for name, c := range map[string]struct {
		b    *flow.Builder
		want error
	}{
		"no id":               {(&flow.Builder{}).Add(node("")), session.ErrInvalid},
		"nothing to do":       {(&flow.Builder{}).Add(flow.Node{ID: "a"}), session.ErrInvalid},
		"two things to do":    {(&flow.Builder{}).Add(flow.Node{ID: "a", Do: node("a").Do, Operation: "x"}), session.ErrInvalid},
		"retries":             {(&flow.Builder{}).Add(flow.Node{ID: "a", Operation: "x", Retries: -1}), session.ErrInvalid},
		"policy":              {(&flow.Builder{}).Add(flow.Node{ID: "a", Operation: "x", OnFailure: 9}), session.ErrInvalid},
		"inherits on another": {(&flow.Builder{}).Add(flow.Node{ID: "a", Operation: "x", Inherit: true, Branch: ident.New(time.Now())}), session.ErrInvalid},
		"twice":               {(&flow.Builder{}).Add(node("a")).Add(node("a")), session.ErrExists},
		"from nowhere":        {(&flow.Builder{}).Add(node("a"), "b"), session.ErrNotFound},
		"to nowhere":          {(&flow.Builder{}).Add(node("a")).Edge("a", "b", nil), session.ErrNotFound},
		"gathers nothing":     {(&flow.Builder{}).Aggregate(flow.Node{ID: "a"}), session.ErrInvalid},
		"self":                {(&flow.Builder{}).Add(node("a"), "a"), flow.ErrCycle},
		"cycle":               {(&flow.Builder{}).Add(node("r")).Add(node("a"), "c", "r").Add(node("b"), "a").Add(node("c"), "b").Add(node("x"), "c"), flow.ErrCycle},
		"nil function":        {(&flow.Builder{}).Add(node("a")).Add(node("b")).Edge("a", "b", flow.When(nil)), flow.ErrCondition},
		"state":               {(&flow.Builder{}).Add(node("a")).Add(node("b")).Edge("a", "b", flow.If(flow.Skipped)), flow.ErrCondition},
		"panics":              {(&flow.Builder{}).Add(node("a")).Add(node("b")).Edge("a", "b", (*broken)(nil)), flow.ErrCondition},
	} {
		t.Run(name, func(t *testing.T) {
			g, err := c.b.Build()
			wants(t, err, c.want)
			if g != nil {
				t.Fatal("there is a graph")
			}
		})
	}
}

// S-50: the check of a deep graph does not recurse, and names a node of the cycle.
func TestDeepCycle(t *testing.T) {
	const deep = 100_000
	var b flow.Builder
	b.Add(does("0", nil), strconv.Itoa(deep-1))
	for i := 1; i < deep; i++ {
		b.Add(does(strconv.Itoa(i), nil), strconv.Itoa(i-1))
	}
	b.Add(does("behind", nil), "7")
	_, err := b.Build()
	wants(t, err, flow.ErrCycle)
	if strings.Contains(err.Error(), "behind") {
		t.Fatalf("the node is on no cycle: %v", err)
	}
}

// S-50: a chain of 100,000 nodes finishes.
func TestDeepChain(t *testing.T) {
	const deep = 100_000
	var b flow.Builder
	b.Add(does("0", nil))
	for i := 1; i < deep; i++ {
		b.Add(flow.Node{ID: strconv.Itoa(i), Operation: "next"}, strconv.Itoa(i-1))
	}
	s, err := session.New(session.Options{History: 10})
	ok(t, err)
	ran := 0
	most := 0
	ok(t, s.Operations().Register("next", func(context.Context, *session.Branch, any) (any, error) {
		if ran++; ran%1000 == 0 {
			most = max(most, runtime.NumGoroutine())
		}
		return nil, nil
	}))
	before := runtime.NumGoroutine()
	r, err := flow.Run(t.Context(), s, build(t, &b), flow.Options{})
	ok(t, err)
	is(t, "completed", len(r.Completed), deep)
	is(t, "ran", ran, deep-1)
	if most > before+flow.DefaultConcurrency+1 {
		t.Fatalf("%d goroutines, %d before", most, before)
	}
}

// S-50: nothing has happened when a start is refused.
func TestStartRefuses(t *testing.T) {
	stranger, err := session.NewBranch(session.BranchOptions{})
	ok(t, err)
	var plain, elsewhere flow.Builder
	plain.Add(does("a", nil)).Add(does("b", nil), "a")
	elsewhere.Add(does("a", nil)).Add(does("b", nil), "a").Add(flow.Node{ID: "c", Operation: "x", Branch: stranger.ID()})
	endless := map[string]any{}
	endless["in"] = endless
	for name, c := range map[string]struct {
		b    *flow.Builder
		o    flow.Options
		want error
	}{
		"concurrency":        {&plain, flow.Options{Concurrency: -1}, session.ErrInvalid},
		"context":            {&plain, flow.Options{Context: endless}, session.ErrInvalid},
		"default branch":     {&plain, flow.Options{Branch: stranger.ID()}, session.ErrNotFound},
		"a node's branch":    {&elsewhere, flow.Options{}, session.ErrNotFound},
		"created by a panic": {&plain, flow.Options{BranchCreated: func(*session.Branch) { panic(errTest) }}, errTest},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSession(t)
			h, err := flow.Start(t.Context(), s, build(t, c.b), c.o)
			wants(t, err, c.want)
			if h != nil || len(s.Branches()) != 1 || len(notices(s)) > 0 {
				t.Fatalf("%d branches, told %v", len(s.Branches()), notices(s))
			}
		})
	}
	s := newSession(t)
	_, err = s.Remove(s.Default().ID())
	ok(t, err)
	_, err = flow.Run(t.Context(), s, build(t, &plain), flow.Options{})
	wants(t, err, session.ErrNoBranch)
	_, err = flow.Run(t.Context(), nil, build(t, &plain), flow.Options{})
	wants(t, err, session.ErrInvalid)
	_, err = flow.Run(t.Context(), s, nil, flow.Options{})
	wants(t, err, session.ErrInvalid)
}
