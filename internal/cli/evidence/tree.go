package evidence

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"soma/internal/cli/plain"
	"soma/wire"
)

// branch is a node with what follows from it.
type branch struct {
	*wire.TraceNode
	children []*branch
	size     int // nodes of it and below
}

// branches rebuilds the tree of a trace's nodes, which come depth first.
func branches(t *wire.Trace) (roots []*branch) {
	var path []*branch
	for i := range t.Nodes {
		n := &branch{TraceNode: &t.Nodes[i], size: 1}
		path = path[:min(n.Depth, len(path))]
		if len(path) == 0 {
			roots = append(roots, n)
		} else {
			parent := path[len(path)-1]
			parent.children = append(parent.children, n)
		}
		for _, above := range path {
			above.size++
		}
		path = append(path, n)
	}
	return roots
}

// line returns the child with which the line of a branch goes on at the same indent, nil for none: the one that most follows
// from. So a long chain of causes runs straight down.
func (n *branch) line() (on *branch) {
	for _, c := range n.children {
		switch c.Kind {
		case wire.NodeInput, wire.NodeCall, wire.NodeKernel:
			continue
		}
		if on == nil || c.size > on.size {
			on = c
		}
	}
	return on
}

func treeText(t *wire.Trace) string {
	rows := [][]string{{"WHAT", "STATE", "WHERE", "AFTER", "ID"}}
	var put func(n *branch, indent, mark string)
	put = func(n *branch, indent, mark string) {
		what, state := describe(n.TraceNode)
		rows = append(rows, []string{indent + mark + what, state, where(n.TraceNode), after(t, n.TraceNode), idOf(n.TraceNode)})
		if mark != "" {
			indent += "│ "
		}
		on := n.line()
		for _, c := range n.children {
			if c != on {
				put(c, indent, "├ ")
			}
		}
		if on != nil {
			put(on, indent, "")
		}
	}
	for _, root := range branches(t) {
		put(root, "", "")
	}
	return trimmed(plain.Table(rows, map[int]bool{3: true}))
}

func lineText(t *wire.Trace) string {
	nodes := make([]*wire.TraceNode, len(t.Nodes))
	for i := range t.Nodes {
		nodes[i] = &t.Nodes[i]
	}
	slices.SortStableFunc(nodes, func(a, b *wire.TraceNode) int { return a.At.Compare(b.At) })
	rows := [][]string{{"AT", "TOOK", "WHERE", "WHAT", "STATE"}}
	for _, n := range nodes {
		if n.Kind == wire.NodeGap {
			continue
		}
		lasted := ""
		if n.End != nil {
			lasted = took(n.End.Sub(n.At))
		}
		what, state := describe(n)
		rows = append(rows, []string{clock(n.At), lasted, where(n), what, state})
	}
	return trimmed(plain.Table(rows, map[int]bool{1: true}))
}

// trimmed takes away what fills the ends of lines.
func trimmed(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

// describe tells of a node what it is, and how it stands.
func describe(n *wire.TraceNode) (what, state string) {
	what = oneLine(plain.Clean(n.What), 60)
	switch n.Kind {
	case wire.NodeInference:
		what = fmt.Sprintf("inference, step %d attempt %d: %s", n.Step, n.Attempt, what)
	case wire.NodeExecution:
		what = fmt.Sprintf("%s, attempt %d", what, n.Attempt)
	case wire.NodeInput:
		what = "input: " + what
	case wire.NodeCall:
		what = "call: " + what
	case wire.NodeCell:
		what = "cell: " + what
	case wire.NodeEmission:
		what = "emits " + what
	case wire.NodeFact:
		what = "call of " + what
	case wire.NodeGap:
		return "(" + what + ")", ""
	}
	if n.Asked {
		what += " <- asked for"
	}
	var more []string
	more = append(more, stateText(n))
	if n.Usage != nil {
		more = append(more, fmt.Sprintf("%d tokens", n.Usage.Total()), plain.CostAbout(n.Cost, n.Usage.Estimated))
	}
	if n.Dead {
		more = append(more, "a dead letter")
	}
	if n.Note != "" && n.Kind != wire.NodeInput {
		more = append(more, oneLine(plain.Clean(n.Note), 60))
	}
	if n.Via != "" {
		more = append(more, "via "+n.Via)
	}
	if n.See != "" {
		more = append(more, "goes on in trace "+n.See)
	}
	return what, strings.Join(more, ", ")
}

func stateText(n *wire.TraceNode) string {
	text := n.State
	if n.Code != "" {
		text += " " + n.Code
	}
	if n.Error != "" {
		text += ": " + oneLine(plain.Clean(strings.TrimPrefix(n.Error, n.State+": ")), 80)
	}
	if n.Attempts > 1 && n.State == "retrying" {
		text += fmt.Sprintf(", attempt %d to come", n.Attempts)
	} else if n.Attempts > 1 {
		text += fmt.Sprintf(" at attempt %d", n.Attempts)
	}
	if n.Due != nil {
		text += ", due " + clock(*n.Due)
	}
	return text
}

// where is the neuron, with that which sent the delivery to it.
func where(n *wire.TraceNode) string {
	if n.Kind == wire.NodeDelivery && n.Caller != "" && n.Caller != n.Neuron {
		return plain.Clean(n.Caller + " → " + n.Neuron)
	}
	return cmp.Or(plain.Clean(n.Neuron), "-")
}

// idOf is the id that other commands take.
func idOf(n *wire.TraceNode) string {
	if n.Kind == wire.NodeCall || n.Kind == wire.NodeDaemon {
		return "-"
	}
	return plain.Clean(n.ID)
}

func after(t *wire.Trace, n *wire.TraceNode) string { return took(n.At.Sub(t.StartedAt)) }

// took is a time span with milliseconds.
func took(d time.Duration) string { return fmt.Sprintf("%.3f s", d.Seconds()) }
