package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/engine"
	"soma/internal/neuron/graph"
	"soma/tests/durable/counter"
)

// patience bounds every wait of a request and of an end.
const patience = 20 * time.Second

func main() {
	n := &node{out: json.NewEncoder(os.Stdout)}
	flag.StringVar(&n.dsn, "store", "", "sqlite:PATH or a database of PostgreSQL")
	flag.StringVar(&n.name, "name", "local", "name of the node")
	flag.DurationVar(&n.lease, "lease", 0, "how long the places stay without a beat; needed on PostgreSQL")
	flag.StringVar(&n.inflight, "inflight", "", "file of running deliveries")
	flag.Parse()
	n.log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { defer stop(); n.read(ctx, &wg) })
	if err := n.lives(ctx); err != nil {
		n.log.Error("ended", "error", err)
		os.Exit(1)
	}
	wg.Wait()
}

type node struct {
	dsn, name, inflight string
	lease               time.Duration
	log                 *slog.Logger

	mu   sync.Mutex
	now  *life // nil between two
	outs sync.Mutex
	out  *json.Encoder
}

// life is all that is built anew when places are lost.
type life struct {
	*engine.Engine
	store neuron.Store
}

// Request is one line of the input. ID is that of a delivery: a repeat has no effect.
type Request struct {
	N    int         `json:"n"`
	Op   string      `json:"op"` // add, go, connect, burn
	ID   ident.ID    `json:"id,omitzero"`
	Key  string      `json:"key,omitempty"`
	Add  counter.Add `json:"add,omitzero"`
	Many int         `json:"many,omitempty"`
}

// Line is one line of the output: the answer of a request, or an event.
type Line struct {
	N     int    `json:"n,omitempty"`
	Value int64  `json:"value,omitempty"`
	Error string `json:"error,omitempty"`
	// Event: began (Value is the epoch), held (Value places), entered (a gate, by ID), lost (by Error).
	Event string   `json:"event,omitempty"`
	ID    ident.ID `json:"id,omitzero"`
}

func (n *node) say(l Line) {
	n.outs.Lock()
	defer n.outs.Unlock()
	if err := n.out.Encode(l); err != nil {
		os.Exit(1) // nobody reads
	}
}

// read starts one goroutine a request.
func (n *node) read(ctx context.Context, wg *sync.WaitGroup) {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var r Request
		if err := json.Unmarshal(in.Bytes(), &r); err != nil {
			n.say(Line{Event: "bad", Error: err.Error()})
			continue
		}
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			value, err := n.serve(ctx, r)
			l := Line{N: r.N, Value: value}
			if err != nil {
				l.Error = err.Error()
			}
			n.say(l)
		})
	}
}

var errBetween = errors.New("between two lives")

func (n *node) life() *life {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.now
}

func (n *node) serve(ctx context.Context, r Request) (int64, error) {
	l := n.life()
	if l == nil {
		return 0, errBetween
	}
	now := time.Now()
	switch r.Op {
	case "add":
		return l.deliver(ctx, r, counter.Counter(r.Key), func(id neuron.ID) (neuron.Delivery, error) { return counter.AddType.New(id, r.Add, now) })
	case "go":
		return l.deliver(ctx, r, counter.Source(r.Key), func(id neuron.ID) (neuron.Delivery, error) {
			return counter.GoType.New(id, counter.Go{}, now)
		})
	case "connect":
		_, err := l.deliver(ctx, r, graph.ID("me"), func(id neuron.ID) (neuron.Delivery, error) {
			return graph.ConnectType.New(id, counter.Connection(r.Key), now)
		})
		if errors.Is(err, errNothing) {
			err = nil
		}
		return 0, err
	case "burn":
		return 0, l.burn(ctx, r)
	}
	return 0, fmt.Errorf("no operation %q", r.Op)
}

var errNothing = errors.New("nothing is noted of the delivery")

// deliver delivers, and reads what the turn has noted.
func (l *life) deliver(ctx context.Context, r Request, to neuron.ID, make func(neuron.ID) (neuron.Delivery, error)) (int64, error) {
	d, err := make(to)
	if err != nil {
		return 0, err
	}
	d.ID, d.Correlation = r.ID, r.ID
	if err := l.Deliver(ctx, d); err != nil {
		return 0, err
	}
	sum, found, err := counter.Noted(ctx, l.store, r.ID)
	if err == nil && !found {
		err = errNothing
	}
	return sum, err
}

// burn delivers many at once, to a few counters, each under an id that follows from the request's.
func (l *life) burn(ctx context.Context, r Request) error {
	const clients = 32
	errs := make([]error, clients)
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for i := c; i < r.Many && errs[c] == nil; i += clients {
				one := r
				one.ID = ident.Derive(r.ID, fmt.Sprint(i))
				_, errs[c] = l.deliver(ctx, one, counter.Counter(fmt.Sprintf("%s-%d", r.Key, c%8)), func(id neuron.ID) (neuron.Delivery, error) {
					return counter.AddType.New(id, counter.Add{By: 1}, time.Now())
				})
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
