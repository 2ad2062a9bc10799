package library

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"soma/bench/measure"
	"soma/ident"
	"soma/session"
	"soma/session/exchange"
	"soma/session/flow"
)

// letters lets 100 owners send 10,000 letters, collects, and reads them. The second line is the CPU time of ten times as many, with
// that of the first as its bare one: so the ratio says how far from linear it is, on a machine that does other things, too.
func letters(ctx context.Context) ([]measure.Line, error) {
	const small, big, rounds = 10_000, 100_000, 20
	var took []time.Duration
	var few, many time.Duration
	for range rounds { // in turns, with as many letters in both
		start := cpu()
		for range big / small {
			t, err := post(ctx, small)
			if err != nil {
				return nil, err
			}
			took = append(took, t)
		}
		between := cpu()
		if _, err := post(ctx, big); err != nil {
			return nil, err
		}
		few, many = few+between-start, many+cpu()-between
	}
	ms := func(d time.Duration, n int) float64 { return float64(d) / float64(n) / float64(time.Millisecond) }
	ten := measure.Line{Name: "exchange_100k_cpu", Value: ms(many, rounds), Unit: "ms", N: rounds}
	ten.Bare = ms(few, rounds*big/small)
	return []measure.Line{median("exchange_10k", "ms", time.Millisecond, took), ten}, nil
}

// cpu is the CPU time of this program so far.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // it has no reason to fail
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
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
	for i, id := range ids {
		for n := range letters / owners {
			if _, err := x.Send(id, ids[(i+1)%owners], n, ""); err != nil {
				return 0, err
			}
		}
	}
	n, err := x.Sync(ctx)
	if err != nil || n != letters {
		return 0, fmt.Errorf("%d letters were delivered: %w", n, err)
	}
	for i, id := range ids {
		for n := range letters / owners {
			if l, found := x.Pop(ids[(i+1)%owners], id); !found || l.Content != n {
				return 0, fmt.Errorf("letter %d is %v", n, l.Content)
			}
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
		runtime.GC()
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
