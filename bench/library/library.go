// Package library measures the session library in process: what an observer emits in a second, what a split and an inclusion
// take, what the history of a session weighs, and what mail and flows take.
//
// It needs no disk and no daemon; it imports the public packages only.
package library

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"time"

	"soma/bench/measure"
	"soma/session"
)

// Run returns the lines observer_emit_10, split_10k, include_1000, session_100k_events, exchange_10k, exchange_100k_cpu, flow_1000,
// flow_chain_1000 and flow_chain_100k.
func Run(ctx context.Context, _, _ string) ([]measure.Line, error) {
	lines, err := letters(ctx)
	if err != nil {
		return nil, err
	}
	for _, f := range []func(context.Context) (measure.Line, error){emit, split, include, events, wide, chain, deep} {
		l, err := f(ctx)
		if err != nil {
			return nil, err
		}
		lines = append(lines, l)
	}
	return lines, nil
}

type event struct{ n int }

// emit: ten subscribers with type filters, a gate that passes, a bounded history that is full.
func emit(ctx context.Context) (measure.Line, error) {
	const rounds, subscribers = 2_000_000, 10
	o := session.NewObserver(session.ObserverOptions{History: 10_000})
	o.SetGate(func(_ context.Context, payload any) (bool, error) { _, ok := payload.(*event); return ok, nil })
	calls := 0
	for range subscribers {
		h := session.HandlerOf(func(_ context.Context, e *event, _ *session.Observer) (any, error) {
			calls += e.n
			return nil, nil
		})
		if err := o.Observe(h, session.Type[*event]()); err != nil {
			return measure.Line{}, err
		}
	}
	start := time.Now()
	for range rounds {
		if results, err := o.Emit(ctx, &event{1}); err != nil || len(results) != subscribers {
			return measure.Line{}, fmt.Errorf("an emission has %d results: %w", len(results), err)
		}
	}
	took := time.Since(start)
	if calls != rounds*subscribers {
		return measure.Line{}, fmt.Errorf("%d calls", calls)
	}
	return measure.Line{Name: "observer_emit_10", Value: rounds / took.Seconds(), Unit: "events/s", N: rounds}, nil
}

// split clones a member of 10,000 messages; the clone joins the session.
func split(context.Context) (measure.Line, error) {
	const messages, rounds = 10_000, 1_000
	s, err := filled(messages)
	if err != nil {
		return measure.Line{}, err
	}
	took := make([]time.Duration, rounds)
	for i := range took {
		start := time.Now()
		clone, err := s.Split(s.Default().ID())
		took[i] = time.Since(start)
		if err != nil || clone.Len() != messages {
			return measure.Line{}, fmt.Errorf("cannot split: %w", err)
		}
	}
	return median("split_10k", "µs", time.Microsecond, took), nil
}

// include makes 1,000 branches members in one batch.
func include(context.Context) (measure.Line, error) {
	const branches, rounds = 1_000, 50
	took := make([]time.Duration, rounds)
	for i := range took {
		s, err := session.New(session.Options{})
		if err != nil {
			return measure.Line{}, err
		}
		batch := make([]*session.Branch, branches)
		for n := range batch {
			if batch[n], err = session.NewBranch(session.BranchOptions{}); err != nil {
				return measure.Line{}, err
			}
		}
		start := time.Now()
		err = s.Include(batch...)
		took[i] = time.Since(start)
		if err != nil {
			return measure.Line{}, err
		}
	}
	return median("include_1000", "ms", time.Millisecond, took), nil
}

// events weighs a session that has seen 300,000 events and keeps 100,000, by what the heap holds. The events themselves are
// one value that all share, so that only what the session adds is counted.
func events(ctx context.Context) (measure.Line, error) {
	const emitted, kept = 300_000, 100_000
	before := heap()
	s, err := session.New(session.Options{})
	if err != nil {
		return measure.Line{}, err
	}
	if err := s.Observer().Route(func(any) bool { return true }, "all"); err != nil {
		return measure.Line{}, err
	}
	e := &event{}
	for range emitted {
		if _, err := s.Observer().Emit(ctx, e); err != nil {
			return measure.Line{}, err
		}
	}
	weight := heap() - before
	if s.Observer().Len() != kept || s.Observer().Dropped() != emitted-kept {
		return measure.Line{}, errors.New("another number of events is kept: " + strconv.Itoa(s.Observer().Len()))
	}
	return measure.Line{Name: "session_100k_events", Value: float64(weight), Unit: "bytes", N: kept}, nil
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func filled(messages int) (*session.Session, error) {
	s, err := session.New(session.Options{})
	if err != nil {
		return nil, err
	}
	for range messages {
		if _, err := s.Default().Add(session.Message{Role: session.Instruction, Text: "text"}); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func median(name, unit string, of time.Duration, took []time.Duration) measure.Line {
	slices.Sort(took)
	return measure.Line{Name: name, Value: float64(took[len(took)/2]) / float64(of), Unit: unit, N: len(took)}
}
