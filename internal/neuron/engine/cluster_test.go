package engine_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/engine"
	"soma/internal/neuron/neurontest"
)

// at names a neuron of the test kind by its place.
func at(place int, name string) neuron.ID { return id(fmt.Sprintf("%d-%s", place, name)) }

// placed is the test kind with its neurons where their keys say.
func placed() *neuron.Kind {
	k := neuron.NewKind("test")
	k.Place = func(id neuron.ID) neuron.Place {
		n, _, _ := strings.Cut(id.Key, "-")
		p, err := strconv.ParseUint(n, 10, 8)
		if err != nil {
			return neuron.PlaceOf(id.String())
		}
		return neuron.Place(p)
	}
	return k
}

// places returns the set of the numbers from first to last.
func places(first, last int) (s neuron.PlaceSet) {
	for p := first; p <= last; p++ {
		s.Add(neuron.Place(p))
	}
	return s
}

// cluster is a store that several nodes share.
type cluster struct {
	store *neurontest.Store
	nodes []*member

	mu    sync.Mutex
	hints []ident.ID // told by the nodes and not passed on yet
}

func newCluster() *cluster { return &cluster{store: neurontest.NewShared(neuron.DefaultLimits())} }

// member is a node of a cluster.
type member struct {
	*engine.Engine
	name  string
	c     *cluster
	wire  *killed
	fatal chan error
}

// join starts a node without a place.
func (c *cluster) join(t testing.TB, name string, o engine.Options) *member {
	t.Helper()
	m := &member{name: name, c: c, wire: &killed{Store: c.store}, fatal: make(chan error, 1)}
	if o.Store == nil {
		o.Store = c.store
	}
	m.wire.Store = o.Store
	o.Store, o.Node = m.wire, name
	o.Fatal = func(err error) { m.fatal <- err }
	o.Elsewhere = func(hints []neuron.Hint) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, h := range hints {
			c.hints = append(c.hints, h.ID)
		}
	}
	m.Engine = start(t, &base{store: o.Store}, o)
	c.nodes = append(c.nodes, m)
	return m
}

// take gives places to the node, whoever holds them.
func (m *member) take(t testing.TB, places neuron.PlaceSet) {
	t.Helper()
	if err := m.Gain(t.Context(), m.c.store.Take(m.name, places)); err != nil {
		t.Fatal(err)
	}
}

// give gives places up in order and returns those that it did.
func (m *member) give(places neuron.PlaceSet) neuron.PlaceSet {
	given := m.Release(places, neuron.Places)
	m.c.store.Free(m.name, given)
	return given
}

// kill cuts the node off from its store for ever, as SIGKILL does.
func (m *member) kill() {
	m.wire.dead.Store(true)
	for i, other := range m.c.nodes {
		if other == m {
			m.c.nodes = append(m.c.nodes[:i:i], m.c.nodes[i+1:]...)
		}
	}
}

// told returns the hints that have come up since.
func (c *cluster) told() []ident.ID {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.hints
	c.hints = nil
	return h
}

// settle passes hints on until no node has anything to do.
func (c *cluster) settle(t testing.TB) {
	t.Helper()
	for {
		for _, m := range c.nodes {
			quiet(t, m.Engine)
		}
		hints := c.told()
		if len(hints) == 0 {
			return
		}
		for _, m := range c.nodes {
			if err := m.Wake(t.Context(), hints); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func (c *cluster) rows(t testing.TB) []neuron.OutboxRow {
	t.Helper()
	rows, err := c.store.Outbox(t.Context(), neuron.AllPlaces(), zero, 1000)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// texts returns what of the alias a neuron has handled, in order.
func (c *cluster) texts(t testing.TB, of neuron.ID, typ neuron.Type[note]) (out []string) {
	t.Helper()
	p, err := c.store.Entries(t.Context(), of, neuron.In, 0, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range p.Entries {
		if e.Alias == typ.Alias() && e.Settled == "" {
			n, err := typ.Decode(e.Payload)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, n.Text)
		}
	}
	return out
}

func end(t testing.TB, m *member) error {
	t.Helper()
	select {
	case err := <-m.fatal:
		return err
	case <-time.After(20 * time.Second):
		t.Fatal("the engine goes on")
		return nil
	}
}

// gate is a store whose commits wait while it is shut.
type gate struct {
	neuron.Store
	mu   sync.Mutex
	shut chan struct{} // nil: open
	held chan struct{} // told of each commit that waits
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut, g.held = make(chan struct{}), make(chan struct{}, 16)
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.shut)
	g.shut = nil
}

func (g *gate) Commit(ctx context.Context, f neuron.Fence, group []*neuron.Record) error {
	g.mu.Lock()
	shut := g.shut
	g.mu.Unlock()
	if shut != nil {
		g.held <- struct{}{}
		<-shut
	}
	return g.Store.Commit(ctx, f, group)
}
