// Package turns measures the durable turn in process: a delivery from outside, its handler, the commit with its fsync, the
// answer. Many clients are measured against the bare loop of bench/floor, in the same folder, in turns of a second; one
// client by the median of a round.
//
// It wires the real engine and the real store.
package turns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"soma/bench/floor"
	"soma/bench/measure"
	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/engine"
	"soma/internal/store/sqlite"
)

const (
	clients = 64
	neurons = 1000
	seconds = 6 // measured seconds of each loop
)

type message struct {
	Text string `json:"text"`
}

var noted = neuron.NewType[message]("bench.noted.v1")

// Run returns the lines turns_inproc_64, its p99 and turns_inproc_1_p50. dir must lie on a disk.
func Run(ctx context.Context, dir, fs string) (lines []measure.Line, err error) {
	bare, err := floor.Open(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, bare.Close()) }()
	s, err := sqlite.Open(ctx, filepath.Join(dir, "turns.db"), sqlite.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	e, err := Start(ctx, s, filepath.Join(dir, "inflight"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.Stop(ctx)) }()

	op := Deliver(ctx, e)
	rounds, err := beside(bare, op)
	if err != nil {
		return nil, err
	}
	lines = append(lines, rounds.lines("turns_inproc_64", fs)...)
	alone, err := bare.Run(2*time.Second, 1)
	if err != nil {
		return nil, err
	}
	r, err := measure.Drive(2*time.Second, 1, op)
	if err != nil {
		return nil, err
	}
	return append(lines, measure.Line{
		Name: "turns_inproc_1_p50", Value: r.P50.Seconds() * 1000, Unit: "ms", Bare: alone.P50.Seconds() * 1000, N: r.N, FS: fs,
	}), nil
}

// Start runs an engine whose neurons note what they are sent.
func Start(ctx context.Context, s neuron.Store, inflight string) (*engine.Engine, error) {
	k := neuron.NewKind("bench")
	neuron.Handle(k, noted, func(*neuron.Turn, message) error { return nil })
	e, err := engine.New(engine.Options{Store: s, Kinds: []*neuron.Kind{k}, Types: []string{noted.Alias()}, Inflight: inflight})
	if err != nil {
		return nil, err
	}
	return e, e.Start(ctx)
}

// Deliver returns a round: one small message to one of the neurons.
func Deliver(ctx context.Context, e *engine.Engine) func(client, n int) error {
	payload, _ := json.Marshal(message{strings.Repeat("x", 180)})
	ids := make([]neuron.ID, neurons)
	for i := range ids {
		ids[i] = neuron.ID{Owner: "me", Kind: "bench", Key: fmt.Sprint(i)}
	}
	return func(client, n int) error {
		now := time.Now()
		id := ident.New(now)
		return e.Deliver(ctx, neuron.Delivery{
			ID: id, Alias: noted.Alias(), Payload: payload, Target: ids[(n*clients+client)%neurons], Correlation: id, At: now,
		})
	}
}

// rounds are what 64 clients reached, beside the smallest loop for the same job.
type rounds struct {
	ours, theirs float64 // per second
	worst        float64 // of the seconds' p99, in ms
	n            int
}

// beside lets the bare loop and ours run second by second in turns.
func beside(bare interface {
	Run(d time.Duration, clients int) (measure.Result, error)
}, op func(client, n int) error) (r rounds, err error) {
	for range seconds {
		one, err := bare.Run(time.Second, clients)
		if err != nil {
			return r, err
		}
		r.theirs += one.PerSecond / seconds
		if one, err = measure.Drive(time.Second, clients, op); err != nil {
			return r, err
		}
		r.ours += one.PerSecond / seconds
		r.n += one.N
		r.worst = max(r.worst, one.P99.Seconds()*1000)
	}
	return r, nil
}

func (r rounds) lines(name, fs string) []measure.Line {
	return []measure.Line{
		{Name: name, Value: r.ours, Unit: "turns/s", Bare: r.theirs, N: r.n, FS: fs},
		{Name: name + "_p99", Value: r.worst, Unit: "ms", N: r.n, FS: fs},
	}
}
