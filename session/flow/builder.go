package flow

import (
	"context"
	"errors"
	"fmt"

	"soma/session"
)

// Builder gathers a graph. The zero value is empty and ready to use; a builder is for one goroutine. Mistakes are kept until Build.
type Builder struct {
	nodes []Node
	edges []link
	errs  []error
}

type link struct {
	from, to string
	when     Condition
}

// Add adds a node with an unconditional edge from each of the nodes named, which may be added later.
func (b *Builder) Add(n Node, after ...string) *Builder {
	b.nodes = append(b.nodes, n)
	for _, from := range after {
		b.edges = append(b.edges, link{from: from, to: n.ID})
	}
	return b
}

// Edge makes a node depend on another. The edge passes if the condition holds; one that is nil always holds. Two edges between the
// same nodes are two chances.
func (b *Builder) Edge(from, to string, c Condition) *Builder {
	b.edges = append(b.edges, link{from, to, c})
	return b
}

// Aggregate adds a node that gathers from others. Without a function or operation of its own its result is an []any of the results of
// those that completed, in the order named.
func (b *Builder) Aggregate(n Node, from ...string) *Builder {
	if len(from) == 0 {
		b.errs = append(b.errs, fmt.Errorf("%w node %q: it gathers from nobody", session.ErrInvalid, n.ID))
	}
	if n.Do == nil && n.Operation == "" {
		n.Do = gather
	}
	return b.Add(n, from...)
}

func gather(_ context.Context, in In) (any, error) {
	all := make([]any, 0, len(in.Before))
	for _, o := range in.Before {
		if o.State == Completed {
			all = append(all, o.Result)
		}
	}
	return all, nil
}

// Build checks what has been gathered and returns it as a graph; the builder may go on. The error joins what is wrong, and wraps
// [session.ErrInvalid] for a node that is not usable, [session.ErrExists] for an id that is used twice, [session.ErrNotFound] for an
// edge to nowhere, [ErrCondition], [ErrCycle].
func (b *Builder) Build() (*Graph, error) {
	g := &Graph{nodes: append([]Node(nil), b.nodes...), ids: make(map[string]int, len(b.nodes)), in: make([][]inEdge, len(b.nodes))}
	errs := append([]error(nil), b.errs...)
	for i := range g.nodes {
		n := &g.nodes[i]
		if err := n.check(); err != nil {
			errs = append(errs, err)
		} else if _, taken := g.ids[n.ID]; taken {
			errs = append(errs, fmt.Errorf("a node %q %w", n.ID, session.ErrExists))
		}
		g.ids[n.ID] = i
	}
	for _, e := range b.edges {
		from, ok := g.ids[e.from]
		to, found := g.ids[e.to]
		if !ok || !found {
			errs = append(errs, fmt.Errorf("the edge from %q to %q: a node is %w", e.from, e.to, session.ErrNotFound))
			continue
		}
		if err := checked(e.when); err != nil {
			errs = append(errs, fmt.Errorf("the edge from %q to %q: %w", e.from, e.to, err))
		}
		g.in[to] = append(g.in[to], inEdge{from, e.when})
	}
	if len(errs) == 0 {
		errs = append(errs, g.acyclic())
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("cannot build a flow: %w", err)
	}
	return g, nil
}

// Graph is what a flow works through. It never changes, and may be run any number of times, also at once.
type Graph struct {
	nodes []Node
	ids   map[string]int
	in    [][]inEdge
}

type inEdge struct {
	from int
	when Condition
}

// Len is the number of nodes.
func (g *Graph) Len() int { return len(g.nodes) }

// acyclic takes away, again and again, the nodes that wait for nobody; what cannot be taken away is on a cycle or behind one.
func (g *Graph) acyclic() error {
	waits, out := make([]int, len(g.nodes)), make([][]int, len(g.nodes))
	for to, edges := range g.in {
		waits[to] = len(edges)
		for _, e := range edges {
			out[e.from] = append(out[e.from], to)
		}
	}
	free := make([]int, 0, len(g.nodes))
	for i, n := range waits {
		if n == 0 {
			free = append(free, i)
		}
	}
	for at := 0; at < len(free); at++ {
		for _, to := range out[free[at]] {
			if waits[to]--; waits[to] == 0 {
				free = append(free, to)
			}
		}
	}
	if len(free) == len(g.nodes) {
		return nil
	}
	// From a node that is left, backwards over nodes that are left: the first one met twice is on a cycle.
	at := 0
	for waits[at] == 0 {
		at++
	}
	for seen := map[int]bool{}; !seen[at]; {
		seen[at] = true
		for _, e := range g.in[at] {
			if waits[e.from] > 0 {
				at = e.from
				break
			}
		}
	}
	return fmt.Errorf("%w through node %q", ErrCycle, g.nodes[at].ID)
}
