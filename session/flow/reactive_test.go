package flow_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"soma/session"
	"soma/session/flow"
)

// wish is what asks for a node.
type wish struct {
	id            string
	after, before []string
	alone         bool
	what          string
}

// granted makes the node of a wish: it returns the wish's what.
func granted(_ context.Context, w wish) (*flow.Child, error) {
	switch w.what {
	case "null":
		return nil, nil
	case "error":
		return nil, errTest
	case "panic":
		panic(errTest)
	case "unusable":
		return &flow.Child{Node: flow.Node{ID: w.id}}, nil
	}
	return &flow.Child{Node: does(w.id, w.what), After: w.after, Before: w.before, Alone: w.alone}, nil
}

func reasons(r *flow.Result) string {
	var all []string
	for _, f := range r.Refused {
		all = append(all, f.Emitter+">"+f.Node+":"+string(f.Reason))
	}
	return strings.Join(all, " ")
}

// S-57: results ask for nodes, one or several, which ask for further ones; each runs after who has asked.
func TestResultsSpawn(t *testing.T) {
	var b flow.Builder
	b.Add(does("a", []wish{{id: "x", what: "1"}, {what: "2"}, {what: "3"}})).Add(does("b", 1), "a")
	s := newSession(t)
	chain := func(ctx context.Context, w wish) (*flow.Child, error) {
		c, err := granted(ctx, w)
		if c != nil && w.id == "x" {
			c.Node = does("x", wish{what: "4"})
		}
		return c, err
	}
	r, err := flow.Run(t.Context(), s, build(t, &b), flow.Options{Concurrency: 1, Reactive: flow.On(chain)})
	ok(t, err)
	is(t, "spawned", r.Spawned, "[x a/1 a/2 x/1]")
	is(t, "results", []any{r.Results["a/1"], r.Results["a/2"], r.Results["x/1"]}, "[2 3 4]")
	is(t, "notices", of(notices(s), "x"), "spawned queued started completed")
	is(t, "emitter", session.ByType[flow.NodeSpawned](s.Observer())[0].Emitter, "a")
	all := notices(s)
	is(t, "after its emitter", slices.Index(all, "started x") > slices.Index(all, "completed a"), true)
	is(t, "after its emitter", slices.Index(all, "started x/1") > slices.Index(all, "completed x"), true)
	is(t, "refused", len(r.Refused), 0)
	once(t, s, r)
}

// S-57: events ask for nodes, those of the flow's nodes in their name; those of other flows' nodes are not for this one.
func TestEventsSpawn(t *testing.T) {
	s := newSession(t)
	emits := func(id string, w wish) flow.Node {
		return flow.Node{ID: id, Do: func(ctx context.Context, in flow.In) (any, error) {
			_, err := in.Branch.Observer().Emit(ctx, w)
			return nil, err
		}}
	}
	var other flow.Builder
	other.Add(emits("stranger", wish{id: "not here"}))
	foreign := build(t, &other)
	var b flow.Builder
	b.Add(emits("a", wish{id: "x"})).Add(flow.Node{ID: "b", Do: func(ctx context.Context, _ flow.In) (any, error) {
		_, err := s.Observer().Emit(t.Context(), wish{id: "of nobody"})
		if err == nil {
			_, err = flow.Run(ctx, s, foreign, flow.Options{})
		}
		return nil, err
	}}, "a")
	r, err := flow.Run(t.Context(), s, build(t, &b), flow.Options{Concurrency: 1, Reactive: flow.On(granted)})
	ok(t, err)
	is(t, "spawned", r.Spawned, "[x of nobody]")
	var emitters []string
	for _, n := range session.ByType[flow.NodeSpawned](s.Observer()) {
		emitters = append(emitters, n.Node+"<"+n.Emitter)
	}
	is(t, "emitters", emitters, "[x<a of nobody<]")
	results, err := s.Observer().Emit(t.Context(), wish{id: "late"})
	ok(t, err)
	is(t, "who listens after the end", len(results), 0)
}

// S-57, S-60: as many as may be are accepted, 50 where nothing is said, none with 0; what was refused does not count.
func TestMaxSpawn(t *testing.T) {
	wishes := []wish{{id: "a"}, {what: "null"}} // the first two are refused
	for i := range 60 {
		wishes = append(wishes, wish{id: fmt.Sprint("child ", i)})
	}
	for name, c := range map[string]struct {
		r    flow.Reactive
		want int
	}{"default": {flow.On(granted), 50}, "three": {flow.On(granted).Max(3), 3}, "none": {flow.On(granted).Max(0), 0}} {
		t.Run(name, func(t *testing.T) {
			var b flow.Builder
			b.Add(does("a", wishes))
			r := run(t, &b, flow.Options{Reactive: c.r})
			is(t, "spawned", len(r.Spawned), c.want)
			refused := 0
			for _, f := range r.Refused {
				if f.Reason == flow.MaxSpawnExceeded {
					refused++
				}
			}
			want := 60 - c.want
			if c.want == 0 {
				want = 62 // nothing is built where nothing may be
			}
			is(t, "refused", refused, want)
			is(t, "all refusals", r.Refusals, 62-c.want)
		})
	}
}

// S-57: of two that are being built at once only as many join as may be.
func TestMaxSpawnAtOnce(t *testing.T) {
	var building sync.WaitGroup
	building.Add(2)
	both := flow.On(func(_ context.Context, w wish) (*flow.Child, error) {
		building.Done()
		building.Wait()
		return &flow.Child{Node: does(w.id, w.what)}, nil
	})
	var b flow.Builder
	b.Add(does("a", wish{id: "of a"})).Add(does("b", wish{id: "of b"}))
	r := run(t, &b, flow.Options{Reactive: both.Max(1)})
	is(t, "spawned", len(r.Spawned), 1)
	is(t, "refusals", r.Refusals, 1)
	is(t, "reason", r.Refused[0].Reason, flow.MaxSpawnExceeded)
}

// S-57: refusals with their reasons.
func TestRefusals(t *testing.T) {
	var b flow.Builder
	b.Add(does("a", []wish{
		{id: "b"}, {id: "x", before: []string{"a"}}, {id: "y", after: []string{"d"}, before: []string{"c"}}, {id: "z", after: []string{"z"}},
		{id: "z", before: []string{"z"}}, {what: "null"}, {what: "error"}, {what: "panic"}, {id: "u", what: "unusable"},
		{id: "v", after: []string{"nowhere"}}, {id: "w", before: []string{"nowhere"}}, {id: "q", before: []string{"root"}},
	}), "root")
	b.Add(does("root", 1)).Add(does("b", 1), "a").Add(does("c", 1), "b").Add(does("d", 1), "c")
	r := run(t, &b, flow.Options{Reactive: flow.On(granted)})
	is(t, "refused", reasons(r), "a>b:duplicate a>x:cycle a>y:cycle a>z:cycle a>z:cycle a>:null_child a>:builder_error a>:builder_error "+
		"a>u:builder_error a>v:builder_error a>w:builder_error a>q:cycle")
	is(t, "accepted", len(r.Spawned), 0)
	wants(t, r.Refused[6].Err, errTest)
	wants(t, &r.Refused[7], session.ErrPanic)
	is(t, "text", r.Refused[9].Error(), `cannot add node v: builder_error: node "nowhere" is not found`)
	is(t, "completed", len(r.Completed), 5)

	var begun flow.Builder
	begun.Add(does("first", 1)).Add(does("a", wish{id: "q", alone: true, before: []string{"first"}}), "first")
	r = run(t, &begun, flow.Options{Reactive: flow.On(granted)})
	is(t, "refused", reasons(r), "a>q:builder_error")
}

// S-57: a child may come before nodes that wait, and after others than its emitter.
func TestChildrenInBetween(t *testing.T) {
	var b flow.Builder
	b.Add(does("a", wish{id: "x", before: []string{"end"}, after: []string{"side", "side", "a"}, what: "in between"})).Add(does("side", 1))
	b.Add(flow.Node{ID: "end", Do: func(_ context.Context, in flow.In) (any, error) {
		o, found := in.Result("x")
		return fmt.Sprint(found, o.Result, len(in.Before)), nil
	}}, "a")
	r := run(t, &b, flow.Options{Reactive: flow.On(granted)})
	is(t, "end", r.Results["end"], "truein between2")
	is(t, "last", r.Completed[len(r.Completed)-1], "end")
}

// S-57, S-60: a child has a clone of its emitter's branch as that is when the child starts; one that is alone a clone of the default.
func TestBranchesOfChildren(t *testing.T) {
	s := newSession(t)
	speaks := func(id string, w wish) flow.Node {
		return flow.Node{ID: id, Do: func(ctx context.Context, in flow.In) (any, error) {
			if _, err := in.Branch.AddContext(ctx, session.Message{Role: session.Assistant, Text: id}); err != nil {
				return nil, err
			}
			return w, nil
		}}
	}
	child := func(_ context.Context, w wish) (*flow.Child, error) {
		return &flow.Child{Node: branchOf(w.id), Alone: w.alone}, nil
	}
	var b flow.Builder
	b.Add(does("root", 1)).Add(speaks("a", wish{id: "x"}), "root").Add(speaks("b", wish{id: "y", alone: true}), "root")
	var created, set []*session.Branch
	o := flow.Options{Concurrency: 1, BranchCreated: func(b *session.Branch) { created = append(created, b) }}
	o.Reactive = flow.On(child).Setup(func(_ context.Context, b *session.Branch, n flow.Node) error {
		if len(of(notices(s), n.ID)) > len("spawned queued") {
			t.Errorf("%s has started before its set-up", n.ID)
		}
		set = append(set, b)
		return nil
	})
	r, err := flow.Run(t.Context(), s, build(t, &b), o)
	ok(t, err)
	x, y := r.Results["x"].(*session.Branch), r.Results["y"].(*session.Branch)
	is(t, "messages of x", x.Len(), 1)
	is(t, "messages of y", y.Len(), 0)
	_, err = s.Branch(x.ID())
	ok(t, err)
	is(t, "x is another", x.ID() == r.Branches["a"], false)
	is(t, "created", len(created), 4)
	is(t, "the last ones", slices.Contains(created, x) && slices.Contains(created, y), true)
	slices.SortFunc(set, func(b, _ *session.Branch) int {
		if b == x {
			return -1
		}
		return 1
	})
	is(t, "set up", set, []*session.Branch{x, y})

	var c flow.Builder
	c.Add(does("a", wish{id: "x"}))
	for name, setup := range map[string]func(context.Context, *session.Branch, flow.Node) error{
		"error": func(context.Context, *session.Branch, flow.Node) error { return errTest },
		"panic": func(context.Context, *session.Branch, flow.Node) error { panic(errTest) },
	} {
		r := run(t, &c, flow.Options{Reactive: flow.On(granted).Setup(setup)})
		is(t, name, r.Failed, "[x]")
		wants(t, r.Errors["x"], errTest)
	}
}

// S-55, S-57: what a gate spawned, or what is put behind one that has rejected, is vetoed.
func TestChildrenBehindAGate(t *testing.T) {
	begun, leave := make(chan string, 1), make(chan struct{})
	var b flow.Builder
	b.Add(flow.Node{ID: "gate", Gate: true, Do: func(ctx context.Context, in flow.In) (any, error) {
		_, err := in.Branch.Observer().Emit(ctx, wish{id: "child"})
		return false, err
	}}).Add(does("behind", 1), "gate").Add(blocks("open", begun, leave), "begin").Add(does("end", 1), "open").Add(does("end of all", 1), "end", "behind").Add(does("begin", 1), "gate2")
	b.Add(does("gate2", 1))
	s := newSession(t)
	ended := make(chan string, 9)
	h := start(t, s, &b, flow.Options{Reactive: flow.On(granted), Progress: func(p flow.Progress) {
		if p.Kind == flow.IsSkipped {
			ended <- p.Node
		}
	}})
	<-begun
	for range 3 {
		<-ended // the gate has rejected
	}
	ok(t, h.Inject(flow.Child{Node: does("late", 1), After: []string{"gate"}, Before: []string{"end"}}))
	ok(t, h.Inject(flow.Child{Node: does("later", 1), After: []string{"behind", "open"}}))
	close(leave)
	r := wait(t, h)
	slices.Sort(r.Skipped)
	is(t, "skipped", r.Skipped, "[behind child end end of all late later]")
	is(t, "vetoed", sorted(r.Vetoed["gate"]), "[behind child end end of all late later]")
	once(t, s, r)
}

// S-60: nodes can be put in by hand until the flow has ended.
func TestInject(t *testing.T) {
	begun, leave := make(chan string, 1), make(chan struct{})
	var b flow.Builder
	b.Add(blocks("a", begun, leave))
	s := newSession(t)
	h := start(t, s, &b, flow.Options{Reactive: flow.On(granted).Max(1)})
	<-begun
	ok(t, h.Inject(flow.Child{Node: branchOf("x"), After: []string{"a"}}))
	_, err := s.Observer().Emit(t.Context(), wish{id: "asked for"}) // the first request, for what is put in is none
	ok(t, err)
	err = h.Inject(flow.Child{Node: does("x", 1)})
	var refusal *flow.Refusal
	if !errors.As(err, &refusal) || refusal.Reason != flow.Duplicate {
		t.Fatalf("the error is %v", err)
	}
	err = h.Inject(flow.Child{Node: does("", 1)})
	wants(t, err, session.ErrInvalid)
	elsewhere := does("y", 1)
	elsewhere.Branch = h.ID()
	wants(t, h.Inject(flow.Child{Node: elsewhere}), session.ErrNotFound)
	here := branchOf("here")
	here.Branch = s.Default().ID()
	ok(t, h.Inject(flow.Child{Node: here}))
	close(leave)
	r := wait(t, h)
	is(t, "spawned", r.Spawned, "[x asked for here]")
	is(t, "here", r.Results["here"] == s.Default(), true)
	is(t, "a clone", r.Results["x"] == s.Default(), false)
	is(t, "no refusals of the flow", r.Refusals, 0)
	err = h.Inject(flow.Child{Node: does("late", 1)})
	wants(t, err, flow.ErrEnded)
	if !errors.As(err, &refusal) || refusal.Reason != flow.Ended {
		t.Fatalf("the error is %v", err)
	}
	once(t, s, r)
}

// S-57: a node that escalates runs again, with other arguments, as often as it may.
func TestEscalation(t *testing.T) {
	var attempts []string
	hard := func(asError bool) flow.Func {
		return func(_ context.Context, in flow.In) (any, error) {
			attempts = append(attempts, fmt.Sprint(in.Attempt, ":", in.Args))
			if in.Args == "strong" {
				return "solved", nil
			}
			e := &flow.Escalation{Reason: "too hard", Args: map[any]any{"weak": "middle", "middle": "strong"}[in.Args]}
			if asError {
				return nil, fmt.Errorf("wrapped: %w", e)
			}
			return *e, nil
		}
	}
	for _, asError := range []bool{true, false} {
		attempts = nil
		var b flow.Builder
		b.Add(flow.Node{ID: "a", Do: hard(asError), Args: "weak", Retries: 2}).Add(does("b", 1), "a")
		s := newSession(t)
		r, err := flow.Run(t.Context(), s, build(t, &b), flow.Options{})
		ok(t, err)
		is(t, "attempts", attempts, "[1:weak 2:middle 3:strong]")
		is(t, "result", r.Results["a"], "solved")
		is(t, "told", of(notices(s), "a"), "queued started escalated started escalated started completed")
		is(t, "reason", session.ByType[flow.NodeEscalated](s.Observer())[1].Reason, "too hard")
		is(t, "attempt", session.ByType[flow.NodeEscalated](s.Observer())[1].Attempt, 2)
		once(t, s, r)
	}

	attempts = nil
	var b flow.Builder
	b.Add(flow.Node{ID: "a", Do: hard(true), Args: "weak", Retries: 1})
	r := run(t, &b, flow.Options{})
	is(t, "attempts", attempts, "[1:weak 2:middle]")
	var e *flow.Escalation
	is(t, "failed with it", errors.As(r.Errors["a"], &e), true)

	attempts = nil
	var asked []string
	o := flow.Options{Escalate: func(_ context.Context, in flow.In, e *flow.Escalation) (any, error) {
		asked = append(asked, in.Node+":"+e.Reason)
		return "strong", nil
	}}
	r = run(t, &b, o)
	is(t, "asked", asked, "[a:too hard]")
	is(t, "attempts", attempts, "[1:weak 2:strong]")
	is(t, "completed", r.Completed, "[a]")
	o.Escalate = func(context.Context, flow.In, *flow.Escalation) (any, error) { return nil, errTest }
	wants(t, run(t, &b, o).Errors["a"], errTest)
}
