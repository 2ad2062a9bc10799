// Package calls measures calls between neurons in process: the request as a committed step, the method in a turn of its
// target, the answer. One caller by the median of a call within its handler; many by the turns that make one call each.
//
// It wires the real engine and the real store.
package calls

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"soma/bench/floor"
	"soma/bench/measure"
	"soma/internal/neuron"
	"soma/internal/neuron/call"
	"soma/internal/neuron/engine"
	"soma/internal/store/sqlite"
)

const (
	clients = 64
	neurons = 1000
	seconds = 3
)

type message struct {
	Text string `json:"text"`
}

var (
	asks = neuron.NewType[int]("bench.asks.v1")
	echo = call.New[message, message]("bench.echo", "say")
)

// Run returns the lines call_p50 and calls_64. dir must lie on a disk.
func Run(ctx context.Context, dir, fs string) (lines []measure.Line, err error) {
	bare, err := floor.Open(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, bare.Close()) }()
	s, err := sqlite.Open(ctx, filepath.Join(dir, "calls.db"), sqlite.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	var took times
	text := message{strings.Repeat("x", 180)}
	k := neuron.NewKind("bench")
	neuron.Handle(k, asks, func(t *neuron.Turn, n int) error {
		began := time.Now()
		got, err := call.Do(t, echo, of("b", n), text)
		if err == nil && got != text {
			err = fmt.Errorf("the answer is %+v", got)
		}
		took.add(time.Since(began))
		return err
	})
	call.Serve(k, echo, func(_ *neuron.Turn, m message) (message, error) { return m, nil })
	e, err := engine.New(engine.Options{
		Store: s, Kinds: []*neuron.Kind{k}, Types: []string{asks.Alias(), echo.Alias()}, Inflight: filepath.Join(dir, "inflight"),
	})
	if err != nil {
		return nil, err
	}
	if err := e.Start(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.Stop(ctx)) }()
	op := func(client, n int) error {
		i := (n*clients + client) % neurons
		return engine.Fire(ctx, e, of("a", i), asks, i)
	}
	alone, err := bare.Run(seconds*time.Second, 1)
	if err != nil {
		return nil, err
	}
	if _, err := measure.Drive(seconds*time.Second, 1, op); err != nil {
		return nil, err
	}
	p50, n := took.median()
	lines = append(lines, measure.Line{
		Name: "call_p50", Value: p50.Seconds() * 1000, Unit: "ms", Bare: 2 * alone.P50.Seconds() * 1000, N: n, FS: fs,
	})
	many, err := bare.Run(seconds*time.Second, clients)
	if err != nil {
		return nil, err
	}
	r, err := measure.Drive(seconds*time.Second, clients, op)
	if err != nil {
		return nil, err
	}
	return append(lines, measure.Line{
		Name: "calls_64", Value: r.PerSecond, Unit: "calls/s", Bare: many.PerSecond / 3, N: r.N, FS: fs,
	}), nil
}

func of(side string, n int) neuron.ID {
	return neuron.ID{Owner: "me", Kind: "bench", Key: fmt.Sprint(side, n)}
}

// times collects from handlers how long their calls took.
type times struct {
	mu  sync.Mutex
	all []time.Duration
}

func (t *times) add(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, d)
}

func (t *times) median() (time.Duration, int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	slices.Sort(t.all)
	if len(t.all) == 0 {
		return 0, 0
	}
	return t.all[len(t.all)/2], len(t.all)
}
