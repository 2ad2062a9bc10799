// Command library shows package session in a program of one's own: no daemon, no database, no model. Two conversations share an
// observer with a gate, an operation, a memory, mail; one is split, a flow works through a graph on clones of it, and the session is
// saved and restored.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"soma/hook"
	"soma/ident"
	"soma/message"
	"soma/session"
	"soma/session/exchange"
	"soma/session/flow"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "library:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	s, err := session.New(session.Options{Name: "kitchen", User: "ann", Mail: exchange.New(exchange.Options{})})
	if err != nil {
		return err
	}
	cook, err := s.NewBranch(session.BranchOptions{Name: "cook", System: "You cook.", AsDefault: true})
	if err != nil {
		return err
	}
	for _, step := range []func(context.Context, *session.Session, *session.Branch) error{watch, tools, operation, ways, mail, meal, keep} {
		if err := step(ctx, s, cook); err != nil {
			return err
		}
	}
	return nil
}

// watch prints what is said, and lets nobody light a fire.
func watch(_ context.Context, s *session.Session, _ *session.Branch) error {
	s.Observer().SetGate(func(_ context.Context, payload any) (bool, error) {
		a, ok := payload.(session.Action)
		return !ok || a.Tool != "light", nil
	})
	said := session.HandlerOf(func(_ context.Context, m session.Message, _ *session.Observer) (any, error) {
		if m.Role == session.ActionResponse {
			fmt.Println("  said:", m.Text)
		}
		return nil, nil
	})
	return s.Observer().Observe(said, session.Type[session.Message]())
}

// tools run one that may run, one that the gate refuses, and one that a hook keeps back.
func tools(ctx context.Context, s *session.Session, cook *session.Branch) error {
	fmt.Println("tools")
	for _, name := range []string{"chop", "light", "serve"} {
		err := cook.SetTool(session.Tool{Name: name, Run: func(context.Context, json.RawMessage) (any, error) { return name + ": done", nil }})
		if err != nil {
			return err
		}
	}
	notYet := session.NewHook(func(_ context.Context, a session.HookArgs) error {
		if a.Tool == "serve" {
			return fmt.Errorf("%s is not hungry yet", a.User)
		}
		return nil
	})
	if err := s.Hooks().On(hook.ToolPre, notYet); err != nil {
		return err
	}
	for _, name := range []string{"chop", "light", "serve"} {
		if _, err := cook.Act(ctx, message.Call{Tool: name}); err != nil {
			return err
		}
	}
	return nil
}

// operation registers a function for all branches and runs it on the default one.
func operation(ctx context.Context, s *session.Session, _ *session.Branch) error {
	fmt.Println("operation")
	err := s.Operations().Register("remember", func(ctx context.Context, b *session.Branch, args any) (any, error) {
		return b.Memory().Store(ctx, session.Item{Text: fmt.Sprint(args), Tags: []string{"kitchen"}})
	})
	if err != nil {
		return err
	}
	if _, err := s.RunOperation(ctx, "remember", ident.ID{}, "salt is on the upper shelf"); err != nil {
		return err
	}
	found, err := s.Memory().Search(ctx, session.Query{Text: "SALT"})
	if err != nil {
		return err
	}
	fmt.Println("  remembered:", found[0].Text)
	return nil
}

// ways splits the conversation: the clone goes on by itself.
func ways(_ context.Context, s *session.Session, cook *session.Branch) error {
	fmt.Println("split")
	other, err := s.Split(cook.ID())
	if err != nil {
		return err
	}
	other.SetName("another way")
	if _, err := other.Add(session.Message{Role: session.Instruction, Text: "what if we bake it?"}); err != nil {
		return err
	}
	for _, b := range []*session.Branch{cook, other} {
		fmt.Printf("  %s has %d messages\n", b.Name(), b.Len())
	}
	return nil
}

// mail goes from the cook to everybody; it arrives once somebody collects.
func mail(ctx context.Context, s *session.Session, cook *session.Branch) error {
	fmt.Println("mail")
	guest := ident.New(time.Now())
	if err := s.RegisterParticipant(guest); err != nil {
		return err
	}
	if _, err := s.Send(cook.ID(), guest, "dinner is at eight", ""); err != nil {
		return err
	}
	fmt.Printf("  before: %d letters\n", len(s.Receive(guest)))
	if _, err := s.Sync(ctx); err != nil {
		return err
	}
	letter, _ := s.Pop(guest, cook.ID())
	fmt.Println("  the guest reads:", letter.Content)
	return nil
}

// dish is what a node asks the flow for.
type dish struct{ name string }

// meal is a flow: a condition decides whether there is soup, the menu asks for dishes while the flow runs, and a gate keeps what
// comes after it from happening.
func meal(ctx context.Context, s *session.Session, _ *session.Branch) error {
	fmt.Println("meal")
	answer := func(v any) flow.Func { return func(context.Context, flow.In) (any, error) { return v, nil } }
	var b flow.Builder
	b.Add(flow.Node{ID: "look outside", Do: answer("cold")})
	b.Add(flow.Node{ID: "soup", Do: answer("hot")})
	b.Edge("look outside", "soup", flow.When(func(_ context.Context, p flow.Passage) (bool, error) { return p.Result == "cold", nil }))
	b.Add(flow.Node{ID: "menu", Do: answer([]dish{{"fish"}, {"cake"}})}, "soup")
	b.Add(flow.Node{ID: "taste", Gate: true, Do: answer(flow.Verdict{Reject: true, Reason: "too much salt"})}, "soup")
	b.Add(flow.Node{ID: "serve the soup", Do: answer(nil)}, "taste")
	graph, err := b.Build()
	if err != nil {
		return err
	}
	o := flow.Options{Concurrency: 1, Reactive: flow.On(func(_ context.Context, d dish) (*flow.Child, error) {
		return &flow.Child{Node: flow.Node{ID: d.name, Operation: "remember", Args: "we had " + d.name}}, nil
	})}
	for end, err := range flow.Stream(ctx, s, graph, o) {
		if err != nil {
			return err
		}
		fmt.Printf("  %s: %s\n", end.Node, end.State)
	}
	found, err := s.Memory().Search(ctx, session.Query{Text: "we had"})
	if err != nil {
		return err
	}
	fmt.Printf("  remembered: %d dishes\n", len(found))
	return nil
}

// keep writes the session down and makes it again.
func keep(_ context.Context, s *session.Session, _ *session.Branch) error {
	fmt.Println("keep")
	text, err := json.Marshal(s.Save())
	if err != nil {
		return err
	}
	var saved session.Saved
	if err := json.Unmarshal(text, &saved); err != nil {
		return err
	}
	again, err := session.Restore(saved, session.Options{})
	if err != nil {
		return err
	}
	for _, b := range again.Branches() {
		if b.Name() != "" {
			fmt.Printf("  %s has %d messages\n", b.Name(), b.Len())
		}
	}
	fmt.Printf("  the default is %q\n", again.Default().Name())
	return nil
}
