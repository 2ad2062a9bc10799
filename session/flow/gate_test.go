package flow_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"soma/session"
	"soma/session/flow"
)

func gate(id string, answer any) flow.Node {
	n := does(id, answer)
	n.Gate = true
	return n
}

// S-55: in a diamond of which one side is behind a gate that rejects, everything behind the gate is vetoed.
func TestGateVetoes(t *testing.T) {
	for name, no := range map[string]flow.Node{
		"verdict":     gate("gate", flow.Verdict{Reject: true, Reason: "too long"}),
		"pointer":     gate("gate", &flow.Verdict{Reject: true}),
		"bool":        gate("gate", false),
		"no verdict":  gate("gate", "perhaps"),
		"nil":         gate("gate", nil),
		"nil verdict": gate("gate", (*flow.Verdict)(nil)),
		"failure": func() flow.Node {
			n := fails("gate")
			n.Gate = true
			return n
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			var b flow.Builder
			b.Add(does("top", 1)).Add(no, "top").Add(does("side", 1), "top")
			b.Add(does("left", 1), "gate").Add(does("bottom", 1), "left", "side").Add(does("end", 1), "bottom").Add(does("sibling", 1), "side")
			// A condition behind the gate is not asked.
			b.Edge("gate", "end", flow.When(func(context.Context, flow.Passage) (bool, error) { t.Error("asked"); return true, nil }))
			s := newSession(t)
			r, err := flow.Run(t.Context(), s, build(t, &b), flow.Options{})
			ok(t, err)
			vetoed := r.Vetoed["gate"]
			slices.Sort(vetoed)
			is(t, "vetoed", vetoed, "[bottom end left]")
			slices.Sort(r.Skipped)
			is(t, "skipped", r.Skipped, "[bottom end left]")
			for _, other := range []string{"top", "side", "sibling"} {
				is(t, other, slices.Contains(r.Completed, other), true)
			}
			for _, n := range session.ByType[flow.NodeSkipped](s.Observer()) {
				if !strings.HasPrefix(n.Reason, `vetoed by gate "gate"`) {
					t.Fatalf("the reason is %q", n.Reason)
				}
			}
			if name == "no verdict" {
				wants(t, r.Errors["gate"], flow.ErrVerdict)
			}
			once(t, s, r)
		})
	}
}

// S-55
func TestGateAccepts(t *testing.T) {
	var b flow.Builder
	b.Add(gate("yes", true)).Add(gate("verdict", flow.Verdict{}), "yes").Add(does("after", 1), "verdict")
	s := newSession(t)
	r, err := flow.Run(t.Context(), s, build(t, &b), flow.Options{})
	ok(t, err)
	is(t, "completed", r.Completed, "[yes verdict after]")
	is(t, "vetoed", len(r.Vetoed), 0)
}

// S-55: two gates that reject both name what is behind them; a node is skipped once.
func TestTwoGates(t *testing.T) {
	var b flow.Builder
	b.Add(gate("one", flow.Verdict{Reject: true, Reason: "first"})).Add(gate("two", false)).Add(does("both", 1), "one", "two").Add(does("only", 1), "two")
	s := newSession(t)
	r, err := flow.Run(t.Context(), s, build(t, &b), flow.Options{Concurrency: 1})
	ok(t, err)
	is(t, "vetoed", r.Vetoed, "map[one:[both] two:[both only]]")
	is(t, "completed", r.Completed, "[one two]")
	is(t, "skipped", r.Skipped, "[both only]")
	is(t, "reason", session.ByType[flow.NodeSkipped](s.Observer())[0].Reason, `vetoed by gate "one": first`)
	is(t, "rejected", session.ByType[flow.NodeCompleted](s.Observer())[0].Rejected, true)
	once(t, s, r)
}
