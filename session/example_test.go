package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"soma/hook"
	"soma/ident"
	"soma/message"
	"soma/session"
)

// Two conversations in one session, an observer that counts what they say, and a gate that keeps one tool from running.
func Example() {
	ctx := context.Background()
	s, err := session.New(session.Options{Name: "research", User: "ann"})
	if err != nil {
		fmt.Println(err)
		return
	}
	reader, _ := s.NewBranch(session.BranchOptions{Name: "reader", System: "Read carefully."})
	writer, _ := s.NewBranch(session.BranchOptions{Name: "writer", System: "Write briefly."})

	said := session.HandlerOf(func(_ context.Context, m session.Message, _ *session.Observer) (any, error) {
		if m.Call != nil {
			m.Text = m.Call.Tool
		}
		fmt.Printf("%s: %s\n", m.Role, m.Text)
		return nil, nil
	})
	_ = s.Observer().Observe(said, session.Type[session.Message]())
	s.Observer().SetGate(func(_ context.Context, payload any) (bool, error) {
		a, ok := payload.(session.Action)
		return !ok || a.Tool != "delete", nil
	})

	for _, name := range []string{"count", "delete"} {
		_ = writer.SetTool(session.Tool{Name: name, Run: func(context.Context, json.RawMessage) (any, error) { return name + " is done", nil }})
	}
	_, _ = reader.AddContext(ctx, session.Message{Role: session.Instruction, Text: "what is in the folder?"})
	_, _ = writer.Act(ctx, message.Call{Tool: "count"})
	_, _ = writer.Act(ctx, message.Call{Tool: "delete"})

	denied := session.ByType[session.GateDenied](s.Observer())
	fmt.Println("denied:", denied[0].Data.(session.Action).Tool)
	// Output:
	// instruction: what is in the folder?
	// action_request: count
	// action_response: count is done
	// action_request: delete
	// action_response: {"error":"denied by the gate"}
	// denied: delete
}

// A clone goes on from where its origin stands, and neither sees what the other does afterwards.
func ExampleSession_Split() {
	s, _ := session.New(session.Options{})
	first := s.Default()
	_, _ = first.Add(session.Message{Role: session.Instruction, Text: "common ground"})
	second, _ := s.Split(first.ID())
	_, _ = second.Add(session.Message{Role: session.Assistant, Text: "one way"})
	_, _ = first.Add(session.Message{Role: session.Assistant, Text: "another way"})
	for _, b := range s.Branches() {
		for _, m := range b.Messages() {
			fmt.Println(m.Text)
		}
	}
	// Output:
	// common ground
	// another way
	// common ground
	// one way
}

// A branch moves from one session to another by leaving and joining.
func ExampleSession_Include() {
	one, _ := session.New(session.Options{})
	two, _ := session.New(session.Options{})
	b, _ := one.NewBranch(session.BranchOptions{})
	fmt.Println(errors.Is(two.Include(b), session.ErrOwned))
	_, _ = one.Remove(b.ID())
	fmt.Println(two.Include(b))
	// Output:
	// true
	// <nil>
}

// An operation is registered once and runs on every branch of the session.
func ExampleSession_RunOperation() {
	s, _ := session.New(session.Options{})
	_ = s.Operations().Register("greet", func(_ context.Context, b *session.Branch, args any) (any, error) {
		return fmt.Sprintf("hello %v, from %q", args, b.Name()), nil
	})
	b, _ := s.NewBranch(session.BranchOptions{Name: "second"})
	for _, id := range []ident.ID{{}, b.ID()} { // the zero id means the default branch
		result, _ := s.RunOperation(context.Background(), "greet", id, "ann")
		fmt.Println(result)
	}
	// Output:
	// hello ann, from ""
	// hello ann, from "second"
}

// A hook at tool.pre can keep a tool from running.
func ExampleHookBus() {
	s, _ := session.New(session.Options{})
	b := s.Default()
	_ = b.SetTool(session.Tool{Name: "send", Run: func(context.Context, json.RawMessage) (any, error) { return "sent", nil }})
	_ = s.Hooks().On(hook.ToolPre, session.NewHook(func(_ context.Context, a session.HookArgs) error {
		return fmt.Errorf("%s needs a person", a.Tool)
	}))
	response, _ := b.Act(context.Background(), message.Call{Tool: "send"})
	fmt.Println(response.Status, response.Text)
	// Output:
	// denied {"error":"denied: tool.pre: send needs a person"}
}

// Routes sort events into named streams, which hold what the history holds.
func ExampleObserver_Route() {
	o := session.NewObserver(session.ObserverOptions{History: 4})
	_ = o.Route(func(v any) bool { n, ok := v.(int); return ok && n%2 == 0 }, "even")
	for n := range 6 {
		_, _ = o.Emit(context.Background(), n)
	}
	for _, e := range o.Stream("even") {
		fmt.Println(e.Seq, e.Payload)
	}
	fmt.Println(o.Len(), "kept,", o.Dropped(), "dropped")
	// Output:
	// 3 2
	// 5 4
	// 4 kept, 2 dropped
}
