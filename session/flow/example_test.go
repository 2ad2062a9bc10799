package flow_test

import (
	"context"
	"fmt"

	"soma/session"
	"soma/session/flow"
)

// A condition decides which way a flow goes, and a gate holds up what must not happen.
func Example() {
	s, _ := session.New(session.Options{})
	answer := func(v any) flow.Func { return func(context.Context, flow.In) (any, error) { return v, nil } }

	var b flow.Builder
	b.Add(flow.Node{ID: "measure", Do: answer(17)})
	b.Add(flow.Node{ID: "few", Do: answer("write it down")})
	b.Add(flow.Node{ID: "many", Do: answer("raise an alarm")})
	more := flow.When(func(_ context.Context, p flow.Passage) (bool, error) { return p.Result.(int) > 10, nil })
	less := flow.When(func(_ context.Context, p flow.Passage) (bool, error) { return p.Result.(int) <= 10, nil })
	b.Edge("measure", "few", less).Edge("measure", "many", more)
	b.Add(flow.Node{ID: "allowed", Gate: true, Do: answer(flow.Verdict{Reject: true, Reason: "it is night"})}, "many")
	b.Add(flow.Node{ID: "siren", Do: answer("loud")}, "allowed")
	b.Aggregate(flow.Node{ID: "report"}, "measure", "few", "many")
	graph, err := b.Build()
	if err != nil {
		fmt.Println(err)
		return
	}

	r, _ := flow.Run(context.Background(), s, graph, flow.Options{Concurrency: 1})
	fmt.Println("completed:", r.Completed)
	fmt.Println("skipped:", r.Skipped)
	fmt.Println("vetoed:", r.Vetoed)
	fmt.Println("report:", r.Results["report"])
	// Output:
	// completed: [measure many allowed report]
	// skipped: [few siren]
	// vetoed: map[allowed:[siren]]
	// report: [17 raise an alarm]
}

// A result asks for further nodes while the flow runs.
func ExampleOn() {
	type chapter struct{ title string }
	s, _ := session.New(session.Options{})
	var b flow.Builder
	b.Add(flow.Node{ID: "outline", Do: func(context.Context, flow.In) (any, error) {
		return []chapter{{"beginning"}, {"middle"}, {"end"}, {"end"}}, nil
	}})
	b.Add(flow.Node{ID: "book", Do: func(_ context.Context, in flow.In) (any, error) {
		var parts []any
		for _, o := range in.Before[1:] { // the first is the outline
			parts = append(parts, o.Result)
		}
		return parts, nil
	}}, "outline")
	graph, _ := b.Build()

	write := flow.On(func(_ context.Context, c chapter) (*flow.Child, error) {
		node := flow.Node{ID: c.title, Do: func(context.Context, flow.In) (any, error) { return "the " + c.title, nil }}
		return &flow.Child{Node: node, Before: []string{"book"}}, nil
	})
	r, _ := flow.Run(context.Background(), s, graph, flow.Options{Reactive: write})
	fmt.Println("spawned:", r.Spawned)
	fmt.Println("book:", r.Results["book"])
	fmt.Println("refused:", r.Refused[0].Node, r.Refused[0].Reason)
	// Output:
	// spawned: [beginning middle end]
	// book: [the beginning the middle the end]
	// refused: end duplicate
}

// Nodes are read as they end; leaving the loop cancels the rest.
func ExampleStream() {
	s, _ := session.New(session.Options{})
	var b flow.Builder
	b.Add(flow.Node{ID: "0", Do: func(context.Context, flow.In) (any, error) { return 1, nil }})
	for i := range 5 {
		double := func(_ context.Context, in flow.In) (any, error) { return 2 * in.Before[0].Result.(int), nil }
		b.Add(flow.Node{ID: fmt.Sprint(i + 1), Do: double}, fmt.Sprint(i))
	}
	graph, _ := b.Build()
	for o, err := range flow.Stream(context.Background(), s, graph, flow.Options{}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(o.Node, o.State, o.Result)
		if o.Node == "3" {
			break
		}
	}
	// Output:
	// 0 completed 1
	// 1 completed 2
	// 2 completed 4
	// 3 completed 8
}

// A flow that has been started can be paused, given more to do, and waited for.
func ExampleStart() {
	ctx := context.Background()
	s, _ := session.New(session.Options{})
	_ = s.Operations().Register("greet", func(_ context.Context, _ *session.Branch, args any) (any, error) {
		return fmt.Sprint("hello ", args), nil
	})
	open := make(chan struct{})
	var b flow.Builder
	b.Add(flow.Node{ID: "first", Do: func(context.Context, flow.In) (any, error) { <-open; return nil, nil }})
	graph, _ := b.Build()
	h, _ := flow.Start(ctx, s, graph, flow.Options{})
	_ = h.Inject(flow.Child{Node: flow.Node{ID: "second", Operation: "greet", Args: "ann"}, After: []string{"first"}})
	close(open)
	r, _ := h.Wait(ctx)
	fmt.Println(r.Completed, r.Results["second"])
	fmt.Println(h.Inject(flow.Child{Node: flow.Node{ID: "third", Operation: "greet"}}))
	// Output:
	// [first second] hello ann
	// cannot add node third: ended: the flow has ended
}
