package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/engine"
	"soma/internal/neuron/graph"
	"soma/internal/neuron/lease"
	"soma/internal/store/postgres"
	"soma/tests/durable/counter"
)

// lives lives one life after the other until ctx ends. On SQLite the first that fails ends the program.
func (n *node) lives(ctx context.Context) error {
	for ctx.Err() == nil {
		err := n.live(ctx)
		if err == nil {
			continue
		}
		n.say(Line{Event: "lost", Error: err.Error()})
		if n.lease == 0 {
			return err
		}
		pause := time.NewTimer(50 * time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
	}
	return nil
}

// live returns nil when ctx has ended, or why the life did.
func (n *node) live(ctx context.Context) (err error) {
	limits := counter.Small()
	opening, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	store, err := counter.Open(opening, n.dsn, limits, n.lease)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	g, err := graph.New(graph.Options{Reader: store})
	if err != nil {
		return err
	}
	var keeper *lease.Keeper
	if several, ok := store.(*postgres.Store); ok {
		keeper = lease.New(lease.Options{Store: several, Lease: n.lease, Log: n.log})
	}
	fatal := make(chan error, 1)
	o := engine.Options{
		Store: store, Kinds: append(counter.Kinds(n.entered), g.Kind()), Types: counter.Types(), Relay: g, Node: n.name,
		Adapters: map[string]neuron.Adapter{"work": counter.Work{}}, Limits: limits, Log: n.log, Inflight: n.inflight,
		Fatal: func(err error) { fatal <- err },
	}
	if keeper != nil {
		o.Elsewhere, o.Leased = keeper.Elsewhere, keeper.Leased
	}
	e, err := engine.New(o)
	if err != nil {
		return err
	}
	if err := e.Start(opening); err != nil {
		return err
	}
	n.set(&life{e, store})
	n.say(Line{Event: "began", Value: int64(e.Epoch())})
	beating, quit := context.WithCancel(ctx)
	var wg sync.WaitGroup
	if keeper != nil {
		wg.Go(func() { _ = keeper.Run(beating, owner{e, n}) }) // the owner hears why
	} else {
		n.say(Line{Event: "held", Value: int64(e.Holding().Len())})
	}
	select {
	case err = <-fatal:
	case <-ctx.Done():
	}
	n.set(nil)
	quit()
	wg.Wait()
	ending, cancelEnd := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancelEnd()
	if serr := e.Stop(ending); serr != nil {
		return fmt.Errorf("%w: %w", serr, err)
	}
	if keeper != nil && err == nil {
		return keeper.Leave(ending, e.Fence())
	}
	return err
}

func (n *node) set(l *life) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.now = l
}

func (n *node) entered(id ident.ID) { n.say(Line{Event: "entered", ID: id}) }

// owner tells of the places that move.
type owner struct {
	*engine.Engine
	n *node
}

func (o owner) Gain(ctx context.Context, taken map[neuron.Place]neuron.Taken) error {
	err := o.Engine.Gain(ctx, taken)
	if err == nil {
		o.n.say(Line{Event: "held", Value: int64(o.Holding().Len())})
	}
	return err
}

func (o owner) Release(places neuron.PlaceSet, most int) neuron.PlaceSet {
	given := o.Engine.Release(places, most)
	if given.Len() > 0 {
		o.n.say(Line{Event: "held", Value: int64(o.Holding().Len())})
	}
	return given
}
