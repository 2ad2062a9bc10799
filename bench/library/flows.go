package library

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"soma/bench/measure"
	"soma/ident"
	"soma/session"
	"soma/session/exchange"
	"soma/session/flow"
)

// letters lets 100 owners send 10,000 letters, collects, and reads them; then ten times as many. The line of the latter has the time of
// the former as its bare one, so that its ratio says how far from linear it is.
func letters(ctx context.Context) ([]measure.Line, error) {
	const small, big, rounds = 10_000, 100_000, 20
	few, err := repeated(rounds, func() (time.Duration, error) { return post(ctx, small) })
	if err != nil {
		return nil, err
	}
	many, err := repeated(rounds, func() (time.Duration, error) { return post(ctx, big) })
	if err != nil {
		return nil, err
	}
	one, ten := median("exchange_10k", "ms", time.Millisecond, few), median("exchange_100k", "ms", time.Millisecond, many)
	ten.Bare = one.Value
	return []measure.Line{one, ten}, nil
}

func post(ctx context.Context, letters int) (time.Duration, error) {
	const owners = 100
	x := exchange.New(exchange.Options{})
	ids := make([]ident.ID, owners)
	for i := range ids {
		ids[i] = ident.New(time.Now())
		if err := x.Register(ids[i]); err != nil {
			return 0, err
		}
	}
	start := time.Now()
	for i := range letters {
		if _, err := x.Send(ids[i%owners], ids[(i+1)%owners], i, ""); err != nil {
			return 0, err
		}
	}
	n, err := x.Sync(ctx)
	if err != nil || n != letters {
		return 0, fmt.Errorf("%d letters were delivered: %w", n, err)
	}
	for i := range letters {
		if l, found := x.Pop(ids[(i+1)%owners], ids[i%owners]); !found || l.Content != i {
			return 0, fmt.Errorf("letter %d is %v", i, l.Content)
		}
	}
	return time.Since(start), nil
}

// wide runs 1,000 nodes of which 999 depend on the first.
func wide(ctx context.Context) (measure.Line, error) {
	return nodes(ctx, "flow_1000", 1_000, 50, func(int) int { return 0 })
}

// chain runs 1,000 nodes of which each depends on the one before.
func chain(ctx context.Context) (measure.Line, error) {
	return nodes(ctx, "flow_chain_1000", 1_000, 50, func(i int) int { return i - 1 })
}

// deep is a chain of 100,000 nodes.
func deep(ctx context.Context) (measure.Line, error) {
	return nodes(ctx, "flow_chain_100k", 100_000, 5, func(i int) int { return i - 1 })
}

// nodes runs a flow with the options that nobody sets, in a session of its own: every dependent has a clone that has joined it, and all
// signals are emitted. The graph is built before.
func nodes(ctx context.Context, name string, n, rounds int, after func(int) int) (measure.Line, error) {
	do := func(context.Context, flow.In) (any, error) { return nil, nil }
	var b flow.Builder
	b.Add(flow.Node{ID: "0", Do: do})
	for i := 1; i < n; i++ {
		b.Add(flow.Node{ID: strconv.Itoa(i), Do: do}, strconv.Itoa(after(i)))
	}
	g, err := b.Build()
	if err != nil {
		return measure.Line{}, err
	}
	took, err := repeated(rounds, func() (time.Duration, error) {
		s, err := session.New(session.Options{})
		if err != nil {
			return 0, err
		}
		start := time.Now()
		r, err := flow.Run(ctx, s, g, flow.Options{})
		took := time.Since(start)
		if err != nil || len(r.Completed) != n || len(s.Branches()) != n {
			return 0, fmt.Errorf("the flow came to %d branches: %w", len(s.Branches()), err)
		}
		return took, nil
	})
	if err != nil {
		return measure.Line{}, err
	}
	return median(name, "ms", time.Millisecond, took), nil
}

func repeated(rounds int, do func() (time.Duration, error)) ([]time.Duration, error) {
	took := make([]time.Duration, 0, rounds)
	for range rounds {
		d, err := do()
		if err != nil {
			return nil, err
		}
		took = append(took, d)
	}
	return took, nil
}
