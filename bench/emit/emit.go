// Package emit measures emissions in process, against real connections on the real store: how many facts with ten receivers
// each are committed in a second, and how many deliveries come of them when every client waits for its own.
//
// It wires the real engine, graph and store.
package emit

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"soma/bench/measure"
	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/engine"
	"soma/internal/neuron/graph"
	"soma/internal/store/sqlite"
)

const (
	clients   = 64
	receivers = 10
	seconds   = 4 // of each figure
	owner     = "me"
)

type message struct {
	Text string `json:"text"`
}

var (
	asked = neuron.NewType[message]("bench.asked.v1")
	fact  = neuron.NewType[message]("bench.fact.v1")
)

// Run returns the lines emit_10 and emit_10_delivered. dir must lie on a disk.
func Run(ctx context.Context, dir, fs string) ([]measure.Line, error) {
	facts, err := one(ctx, filepath.Join(dir, "facts"), fs, false)
	if err != nil {
		return nil, err
	}
	delivered, err := one(ctx, filepath.Join(dir, "delivered"), fs, true)
	if err != nil {
		return nil, err
	}
	return []measure.Line{facts, delivered}, nil
}

// one measures one figure on a database of its own. Facts: all clients' sources are connected to the same ten neurons, which
// get behind. Deliveries: each source has ten of its own, and each client waits until they have committed.
func one(ctx context.Context, name, fs string, wait bool) (line measure.Line, err error) {
	s, err := sqlite.Open(ctx, name+".db", sqlite.Options{})
	if err != nil {
		return line, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	g, err := graph.New(graph.Options{Reader: s})
	if err != nil {
		return line, err
	}
	k := neuron.NewKind("bench")
	neuron.Handle(k, asked, func(t *neuron.Turn, m message) error { return neuron.Emit(t, fact, m) })
	neuron.Handle(k, fact, func(*neuron.Turn, message) error { return nil })
	c := newCount(wait)
	e, err := engine.New(engine.Options{
		Store: s, Kinds: []*neuron.Kind{k, g.Kind()}, Relay: g, Types: append(graph.Aliases(), asked.Alias(), fact.Alias()),
		Inflight: name + ".inflight", Committed: c.committed,
	})
	if err != nil {
		return line, err
	}
	if err := e.Start(ctx); err != nil {
		return line, err
	}
	defer func() { err = errors.Join(err, e.Stop(ctx)) }()
	for client := range clients {
		for n := range receivers {
			connect := graph.Connect{
				ID: ident.New(time.Now()), Source: source(client).String(), Alias: fact.Alias(), Target: c.sink(client, n).String(),
			}
			if err := engine.Fire(ctx, e, graph.ID(owner), graph.ConnectType, connect); err != nil {
				return line, err
			}
		}
	}
	text := message{strings.Repeat("x", 180)}
	r, err := measure.Drive(seconds*time.Second, clients, func(client, _ int) error {
		if err := engine.Fire(ctx, e, source(client), asked, text); err != nil {
			return err
		}
		return c.wait(ctx, client)
	})
	if err != nil {
		return line, err
	}
	if wait {
		return measure.Line{Name: "emit_10_delivered", Value: r.PerSecond * receivers, Unit: "deliveries/s", N: r.N * receivers, FS: fs}, nil
	}
	return measure.Line{Name: "emit_10", Value: r.PerSecond, Unit: "facts/s", N: r.N, FS: fs}, nil
}

func source(client int) neuron.ID {
	return neuron.ID{Owner: owner, Kind: "bench", Key: fmt.Sprint("source ", client)}
}

// count tells clients when the receivers of what they emitted have committed.
type count struct {
	private bool
	sinks   map[neuron.ID]int // to their client
	left    [clients]atomic.Int64
	done    [clients]chan struct{}
}

func newCount(private bool) *count {
	c := &count{private: private, sinks: map[neuron.ID]int{}}
	for client := range clients {
		c.done[client] = make(chan struct{}, 1)
		c.left[client].Store(receivers)
		for n := range receivers {
			c.sinks[c.sink(client, n)] = client
		}
	}
	return c
}

// sink is the n-th receiver of a client.
func (c *count) sink(client, n int) neuron.ID {
	if c.private {
		n += receivers * client
	}
	return neuron.ID{Owner: owner, Kind: "bench", Key: fmt.Sprint("sink ", n)}
}

func (c *count) committed(group []*neuron.Record) {
	if !c.private {
		return
	}
	for _, r := range group {
		client, ok := c.sinks[r.Neuron]
		if !ok || r.Turn == nil {
			continue
		}
		if c.left[client].Add(-1) == 0 {
			c.left[client].Store(receivers)
			c.done[client] <- struct{}{}
		}
	}
}

// wait returns once all receivers have committed what the client last emitted.
func (c *count) wait(ctx context.Context, client int) error {
	if !c.private {
		return nil
	}
	select {
	case <-c.done[client]:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
