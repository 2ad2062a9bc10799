package flow_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"soma/hook"
	"soma/session"
	"soma/session/exchange"
	"soma/session/flow"
)

// branchOf makes a node whose result is the branch that it runs on.
func branchOf(id string) flow.Node {
	return flow.Node{ID: id, Do: func(_ context.Context, in flow.In) (any, error) { return in.Branch, nil }}
}

// S-51, S-60
func TestBranches(t *testing.T) {
	mail := exchange.New(exchange.Options{})
	s, err := session.New(session.Options{Mail: mail})
	ok(t, err)
	s.Hooks()
	given, err := s.NewBranch(session.BranchOptions{Name: "given", System: "be brief", Memory: &session.InMemory{}})
	ok(t, err)
	other, err := s.NewBranch(session.BranchOptions{Name: "other"})
	ok(t, err)
	var b flow.Builder
	named := branchOf("named")
	named.Branch = other.ID()
	b.Add(branchOf("root")).Add(branchOf("dependent"), "root").Add(branchOf("second"), "dependent").Add(named, "second")
	var created []*session.Branch
	o := flow.Options{Branch: given.ID(), BranchCreated: func(b *session.Branch) {
		if owner, member := b.Owner(); !member || owner != s.ID() {
			t.Error("a clone is told of before it has joined")
		}
		created = append(created, b)
	}}
	r, err := flow.Run(t.Context(), s, build(t, &b), o)
	ok(t, err)
	is(t, "the root", r.Results["root"] == given, true)
	is(t, "the named one", r.Results["named"] == other, true)
	dependent, second := r.Results["dependent"].(*session.Branch), r.Results["second"].(*session.Branch)
	is(t, "created", created, []*session.Branch{dependent, second})
	if dependent == second || dependent == given {
		t.Fatal("a dependent has no clone of its own")
	}
	for _, clone := range created {
		member, err := s.Branch(clone.ID())
		ok(t, err)
		is(t, "a member", member == clone, true)
		is(t, "a clone of the given default", clone.Messages()[0].Source, given.Messages()[0].ID)
		is(t, "the session's memory", clone.Memory() == s.Memory(), true)
		is(t, "not its origin's", clone.Memory() == given.Memory(), false)
		is(t, "observer", clone.Observer() == s.Observer(), true)
		is(t, "hooks", clone.Hooks() == s.Hooks(), true)
		is(t, "operations", clone.Operations() == s.Operations(), true)
		is(t, "user", clone.User(), s.ID())
		is(t, "mailbox", mail.Has(clone.ID()), true)
	}
	is(t, "named in the result", r.Branches["second"], second.ID())
	is(t, "members", len(s.Branches()), 5)
}

// S-51: who inherits begins with what its primary predecessor's branch holds when it starts, others with the default's messages.
func TestInherit(t *testing.T) {
	say := func(text string) flow.Func {
		return func(ctx context.Context, in flow.In) (any, error) {
			_, err := in.Branch.AddContext(ctx, session.Message{Role: session.Assistant, Text: text})
			return nil, err
		}
	}
	read := func(_ context.Context, in flow.In) (any, error) {
		text := ""
		for _, m := range in.Branch.Messages() {
			text += m.Text + " "
		}
		return text, nil
	}
	s := newSession(t)
	_, err := s.Default().Add(session.Message{Role: session.Instruction, Text: "start"})
	ok(t, err)
	var b flow.Builder
	b.Add(flow.Node{ID: "root", Do: does("root", nil).Do}).Add(flow.Node{ID: "one", Do: say("one")}, "root").Add(flow.Node{ID: "two", Do: say("two")}, "root")
	b.Add(flow.Node{ID: "heir", Do: read, Inherit: true}, "two", "one")
	b.Add(flow.Node{ID: "plain", Do: read}, "two", "one")
	b.Add(flow.Node{ID: "skipped", Do: read}).Edge("root", "skipped", flow.If(flow.Failed))
	b.Add(flow.Node{ID: "of nobody", Do: read, Inherit: true}, "skipped", "two")
	r, err := flow.Run(t.Context(), s, build(t, &b), flow.Options{})
	ok(t, err)
	is(t, "heir", r.Results["heir"], "start two ")
	is(t, "plain", r.Results["plain"], "start ")
	is(t, "of a skipped one", r.Results["of nobody"], "start ")

	// A branch that hands its messages on cannot take others: the node fails.
	o := flow.Options{BranchCreated: func(b *session.Branch) {
		b.OnMessage(func(context.Context, *session.Branch, session.Message) error { return nil })
	}}
	var c flow.Builder
	c.Add(does("root", nil)).Add(flow.Node{ID: "heir", Do: read, Inherit: true}, "root")
	r, err = flow.Run(t.Context(), newSession(t), build(t, &c), o)
	ok(t, err)
	is(t, "refused", errors.Is(r.Errors["heir"], session.ErrNeedsContext), true)
}

// S-51: a node is a run of its branch, and what it does belongs to it.
func TestNodesAreRuns(t *testing.T) {
	s := newSession(t)
	ok(t, s.Operations().Register("look", func(ctx context.Context, b *session.Branch, args any) (any, error) {
		in, within := flow.Of(ctx)
		before, _ := in.Result("first")
		return fmt.Sprintf("%v %v %v %v %v %v", args, within, in.Node, in.Branch == b, session.OpOf(ctx), before.Result), nil
	}))
	var b flow.Builder
	b.Add(does("first", 1)).Add(flow.Node{ID: "second", Operation: "look", Args: 7}, "first").Add(flow.Node{ID: "third", Operation: "absent"}, "second")
	r, err := flow.Run(t.Context(), s, build(t, &b), flow.Options{})
	ok(t, err)
	is(t, "operation", r.Results["second"], "7 true second true second 1")
	wants(t, r.Errors["third"], session.ErrUnknownOperation)
	starts := session.ByType[session.RunStart](s.Observer())
	is(t, "runs", len(starts), 2)
	is(t, "names", starts[0].Name+" "+starts[1].Name+" "+starts[1].Op, "first look second")
	if _, within := flow.Of(t.Context()); within {
		t.Fatal("no flow is here")
	}
}

// An operation may run a flow on its own branch; a panic in it ends a node and nothing more.
func TestFlowWithinARun(t *testing.T) {
	s := newSession(t)
	ok(t, s.Hooks().On(hook.PromptSubmit, session.NewHook(func(context.Context, session.HookArgs) error { return nil })))
	var b flow.Builder
	b.Add(flow.Node{ID: "panics", Do: func(context.Context, flow.In) (any, error) { panic("no way") }}).Add(does("after", 1), "panics")
	g := build(t, &b)
	result, err := s.Default().Run(t.Context(), "outer", func(ctx context.Context) (any, error) { return flow.Run(ctx, s, g, flow.Options{}) })
	ok(t, err)
	r := result.(*flow.Result)
	wants(t, r.Errors["panics"], session.ErrPanic)
	is(t, "completed", r.Completed, "[after]")
}
