package flow

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"soma/ident"
	"soma/session"
)

// vertex is a node on its way. While it runs it belongs to one goroutine, which reads what others have left; all else is guarded by
// the flow's lock.
type vertex struct {
	node    Node
	state   State
	in      []arc
	out     []*vertex
	waits   int // edges from nodes that have not ended
	notices int // what the clerk has not told of it yet; it does not run before
	attempt int
	vetoed  *vertex // the first gate that has vetoed it
	rejects bool    // it is a gate that has rejected

	spawned  bool
	emitter  *vertex // of a spawned node
	alone    bool    // its branch is no clone of its emitter's
	children int     // spawned ones that had no id of their own
	requests []any
	branch   *session.Branch // nil until a spawned node starts

	result any
	err    error
	reason string
	again  bool // restored from a journal
}

type arc struct {
	from *vertex
	when Condition
}

func (v *vertex) outcome() Outcome {
	return Outcome{Node: v.node.ID, State: v.state, Result: v.result, Err: v.err}
}

// plan is the graph while it is worked through: pure, without locks, goroutines or notices.
type plan struct {
	all   []*vertex
	byID  map[string]*vertex
	ended []*vertex // in the order in which they ended
}

func newPlan(g *Graph) *plan {
	p := &plan{all: make([]*vertex, len(g.nodes)), byID: make(map[string]*vertex, len(g.nodes)), ended: make([]*vertex, 0, len(g.nodes))}
	vertices := make([]vertex, len(g.nodes))
	for i, n := range g.nodes {
		vertices[i] = vertex{node: n, waits: len(g.in[i])}
		p.all[i], p.byID[n.ID] = &vertices[i], &vertices[i]
	}
	for to, edges := range g.in {
		v := p.all[to]
		v.in = make([]arc, len(edges))
		for i, e := range edges {
			v.in[i] = arc{p.all[e.from], e.when}
			p.all[e.from].out = append(p.all[e.from].out, v)
		}
	}
	return p
}

func (p *plan) over() bool { return len(p.ended) == len(p.all) }

// end gives a node its final state, and calls free for each node that waits for nobody any more.
func (p *plan) end(v *vertex, s State, free func(*vertex)) {
	v.state = v.state.next(ends[s])
	p.ended = append(p.ended, v)
	for _, w := range v.out {
		if w.waits--; w.waits == 0 && w.state == waiting {
			free(w)
		}
	}
}

// behind returns all nodes that can be reached from v, once each.
func (p *plan) behind(v *vertex) []*vertex {
	seen := map[*vertex]bool{v: true}
	list := []*vertex{v}
	for at := 0; at < len(list); at++ {
		for _, w := range list[at].out {
			if !seen[w] {
				seen[w] = true
				list = append(list, w)
			}
		}
	}
	return list[1:]
}

// veto skips the nodes, all that is behind a gate. None of them can have begun: each waits for another one of them, or for the gate.
func (p *plan) veto(gate *vertex, nodes []*vertex, reason string) (skipped []*vertex) {
	for _, v := range nodes {
		if v.vetoed == nil {
			v.vetoed = gate
		}
		if v.state == waiting {
			v.reason = reason
			skipped = append(skipped, v)
			v.state = v.state.next(skip)
			p.ended = append(p.ended, v)
		}
	}
	for _, v := range skipped {
		for _, w := range v.out { // all of them are skipped, too
			w.waits--
		}
	}
	return skipped
}

// vetoer returns the gate that vetoes whoever depends on v; nil if none does.
func (v *vertex) vetoer() *vertex {
	if v.rejects && v.state.final() {
		return v
	}
	return v.vetoed
}

// admit adds a child behind its emitter, if there is one.
func (p *plan) admit(c *Child, emitter *vertex) (*vertex, *Refusal) {
	v := &vertex{node: c.Node, spawned: true, emitter: emitter, alone: c.Alone || emitter == nil}
	if v.node.ID == "" && emitter != nil {
		v.node.ID = p.fresh(emitter)
	}
	after, before, refusal := p.place(v, c)
	if refusal != nil {
		refusal.Node = v.node.ID
		return nil, refusal
	}
	for _, w := range after {
		v.in = append(v.in, arc{from: w})
		w.out = append(w.out, v)
		if !w.state.final() {
			v.waits++
		}
	}
	for _, w := range before {
		v.out = append(v.out, w)
		w.in = append(w.in, arc{from: v})
		w.waits++
	}
	p.all, p.byID[v.node.ID] = append(p.all, v), v
	return v, nil
}

// fresh names a child by its emitter and a number.
func (p *plan) fresh(emitter *vertex) string {
	for {
		emitter.children++
		if name := emitter.node.ID + "/" + strconv.Itoa(emitter.children); p.byID[name] == nil {
			return name
		}
	}
}

// place finds the neighbours of a child that is to join.
func (p *plan) place(v *vertex, c *Child) (after, before []*vertex, refusal *Refusal) {
	if err := v.node.check(); err != nil {
		return nil, nil, &Refusal{Reason: BuilderError, Err: err}
	}
	if p.byID[v.node.ID] != nil {
		return nil, nil, &Refusal{Reason: Duplicate}
	}
	if !v.alone {
		after = append(after, v.emitter)
	}
	if after, refusal = p.neighbours(v, c.After, after); refusal != nil {
		return nil, nil, refusal
	}
	if before, refusal = p.neighbours(v, c.Before, nil); refusal != nil {
		return nil, nil, refusal
	}
	if p.closes(before, after) {
		return nil, nil, &Refusal{Reason: Cycle}
	}
	for _, w := range before {
		if w.state != waiting {
			return nil, nil, &Refusal{Reason: BuilderError, Err: fmt.Errorf("it cannot come before %q: %w", w.node.ID, errBegun)}
		}
	}
	return after, before, nil
}

var errBegun = errors.New("it has begun")

// neighbours adds the nodes that a child names to a list, once each.
func (p *plan) neighbours(child *vertex, ids []string, list []*vertex) ([]*vertex, *Refusal) {
	for _, id := range ids {
		w := p.byID[id]
		switch {
		case id == child.node.ID:
			return nil, &Refusal{Reason: Cycle}
		case w == nil:
			return nil, &Refusal{Reason: BuilderError, Err: fmt.Errorf("node %q is %w", id, session.ErrNotFound)}
		case !slices.Contains(list, w):
			list = append(list, w)
		}
	}
	return list, nil
}

// closes says whether a node between after and before would lie on a cycle.
func (p *plan) closes(before, after []*vertex) bool {
	if len(before) == 0 || len(after) == 0 {
		return false
	}
	target := map[*vertex]bool{}
	for _, v := range after {
		target[v] = true
	}
	seen := map[*vertex]bool{}
	for list := slices.Clone(before); len(list) > 0; {
		v := list[len(list)-1]
		list = list[:len(list)-1]
		if target[v] {
			return true
		}
		if !seen[v] {
			seen[v] = true
			list = append(list, v.out...)
		}
	}
	return false
}

// branches gives each node its branch: the one that it names; for a root the default one; for others a clone of that, which is
// returned as well.
func (p *plan) branches(s *session.Session, named ident.ID) (def *session.Branch, clones []*session.Branch, err error) {
	if def = s.Default(); !named.IsZero() {
		if def, err = s.Branch(named); err != nil {
			return nil, nil, err
		}
	}
	for _, v := range p.all {
		switch {
		case !v.node.Branch.IsZero():
			if v.branch, err = s.Branch(v.node.Branch); err != nil {
				return nil, nil, fmt.Errorf("node %q: %w", v.node.ID, err)
			}
		case def == nil:
			return nil, nil, fmt.Errorf("node %q: %w", v.node.ID, session.ErrNoBranch)
		case len(v.in) == 0:
			v.branch = def
		default:
			v.branch = def.Clone()
			clones = append(clones, v.branch)
		}
	}
	return def, clones, nil
}
