package evidence

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"soma/ident"
	"soma/wire"
)

// tree puts the nodes of one trace in order.
type tree struct {
	w          *walk
	deliveries map[ident.ID]*node
	facts      map[string]*node   // by kind and id
	outcomes   map[ident.ID]*node // what a delivery brings the outcome of
	gaps       map[ident.ID]*node // by the cause that is not kept
	loose      []*node            // those that nothing led to
}

type node struct {
	wire.TraceNode
	// under is the delivery that the node belongs to, zero for a delivery; above puts it between that and its cause.
	under    ident.ID
	parent   *node
	children []*node
	written  bool
	order    int // among those of the same time: as the domain told of it; deliveries, before these, go by their ids
}

// fact adds a node that belongs to a delivery. The first one of an id stays.
func (t *tree) fact(under ident.ID, f Fact) {
	key := f.Kind + " " + f.ID
	if t.facts[key] != nil {
		return
	}
	if len(t.facts) >= wire.MaxTraceNodes {
		t.w.cut = "more facts than a trace may hold"
		return
	}
	f.What, f.Error = clip(f.What, whatBytes), clip(f.Error, errorBytes)
	n := &node{TraceNode: f.TraceNode, under: under, order: len(t.facts) + 1}
	if f.Kind == wire.NodeExecution {
		n.order = 0
	}
	t.facts[key] = n
	switch {
	case f.Above:
		t.outcomes[under] = n
		n.under = t.w.items[under].entry.Causation
	case !f.Outcome.IsZero():
		t.outcomes[f.Outcome] = n
	}
	if !f.JoinedAt.IsZero() {
		n.See = t.joined(under, f.JoinedAt)
	}
}

// joined returns the delivery in whose turn something was taken up at a time, "" if that is one of this correlation.
func (t *tree) joined(under ident.ID, at time.Time) string {
	j := t.w.journals[t.w.items[under].entry.Target]
	if j == nil {
		return ""
	}
	for i := len(j.in) - 1; i >= 0; i-- {
		if e := &j.in[i]; !e.At.After(at) {
			if e.Correlation == t.w.correlation {
				return ""
			}
			return e.ID.String()
		}
	}
	return ""
}

// link gives each node its parent.
func (t *tree) link() {
	for _, it := range t.w.order {
		for _, id := range it.receivers {
			t.outcomes[id] = t.deliveries[it.entry.ID]
		}
	}
	for _, it := range t.w.order {
		n := t.deliveries[it.entry.ID]
		if n == nil { // the time was up before
			n = &node{TraceNode: deliveryNode(it)}
			t.deliveries[it.entry.ID] = n
		}
		if x := t.outcomes[it.entry.ID]; x != nil && x != n {
			n.parent = x
		} else {
			n.parent = t.cause(it.entry.Causation, n)
		}
	}
	for _, n := range t.facts {
		n.parent = t.cause(n.under, n)
	}
}

// cause returns the node of a delivery, or of the gap where it should be; nil where nothing led to n.
func (t *tree) cause(id ident.ID, n *node) *node {
	switch {
	case id.IsZero():
		return nil
	case t.deliveries[id] != nil:
		return t.deliveries[id]
	case t.w.elsewhere[id]:
		n.See = id.String()
		return nil
	}
	if t.w.items[id] != nil { // it is yet to be made by link
		t.deliveries[id] = &node{TraceNode: deliveryNode(t.w.items[id])}
		return t.deliveries[id]
	}
	g := t.gaps[id]
	if g == nil {
		g = &node{TraceNode: wire.TraceNode{Kind: wire.NodeGap, ID: id.String(), What: "what led here is not kept any more", At: n.At, State: "gone"}}
		t.gaps[id] = g
	}
	if n.At.Before(g.At) {
		g.At = n.At
	}
	return g
}

// mark finds the node that was asked for: one with that id, else the delivery that the search began with.
func (t *tree) mark(asked string, start ident.ID) {
	for _, n := range t.facts {
		if n.ID == asked || strings.HasPrefix(n.ID, asked+".") {
			n.Asked = true
			return
		}
	}
	if n := t.deliveries[start]; n != nil {
		n.Asked = true
	}
}

// span returns the times of the first and the last thing that is known.
func (t *tree) span() (first, last time.Time) {
	see := func(at time.Time) {
		if first.IsZero() || at.Before(first) {
			first = at
		}
		if at.After(last) {
			last = at
		}
	}
	for n := range t.all() {
		see(n.At)
		if n.End != nil {
			see(*n.End)
		}
	}
	return first, last
}

// all yields every node, gaps excepted.
func (t *tree) all() func(yield func(*node) bool) {
	return func(yield func(*node) bool) {
		for _, it := range t.w.order {
			if n := t.deliveries[it.entry.ID]; n != nil && !yield(n) {
				return
			}
		}
		for _, n := range t.facts {
			if !yield(n) {
				return
			}
		}
		for _, n := range t.loose {
			if !yield(n) {
				return
			}
		}
	}
}

// write puts the nodes depth first into the answer, with their sums.
func (t *tree) write(out *wire.Trace) {
	var all, roots []*node
	for n := range t.all() {
		all = append(all, n)
	}
	for _, g := range t.gaps {
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b *node) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.order, b.order), strings.Compare(a.ID, b.ID))
	})
	for _, n := range all {
		if n.parent == nil {
			roots = append(roots, n)
		} else {
			n.parent.children = append(n.parent.children, n)
		}
	}
	out.StartedAt, out.EndedAt = t.span()
	out.Nodes, out.Cost = []wire.TraceNode{}, new(int64)
	var put func(n *node, parent string, depth int)
	put = func(n *node, parent string, depth int) {
		if n.written {
			return
		}
		n.written = true
		n.Parent, n.Depth = parent, depth
		sum(out, &n.TraceNode)
		out.Nodes = append(out.Nodes, n.TraceNode)
		for _, c := range n.children {
			put(c, n.ID, depth+1)
		}
	}
	for _, n := range roots {
		put(n, "", 0)
	}
	for _, n := range all { // a circle of causes, which rows that were tampered with could show
		put(n, "", 0)
	}
}

// sum adds what a node has used.
func sum(out *wire.Trace, n *wire.TraceNode) {
	if n.Usage == nil {
		return
	}
	out.Tokens += n.Usage.Total()
	out.Estimated = out.Estimated || n.Usage.Estimated
	switch {
	case out.Cost == nil:
	case n.Cost == nil:
		out.Cost = nil
	default:
		*out.Cost += *n.Cost
	}
}
