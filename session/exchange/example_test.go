package exchange_test

import (
	"context"
	"encoding/json"
	"fmt"

	"soma/ident"
	"soma/message"
	"soma/session"
	"soma/session/exchange"
)

// Two branches write to each other; nothing arrives before somebody collects.
func Example() {
	ctx := context.Background()
	x := exchange.New(exchange.Options{})
	s, _ := session.New(session.Options{Mail: x})
	ann := s.Default()
	bob, _ := s.NewBranch(session.BranchOptions{Name: "bob"})

	_, _ = s.Send(ann.ID(), bob.ID(), "the report is ready", "")
	fmt.Println("before:", len(s.Receive(bob.ID())))
	n, _ := s.Sync(ctx)
	fmt.Println("delivered:", n)
	l, _ := s.Pop(bob.ID(), ann.ID())
	fmt.Println("bob reads:", l.Content)
	// Output:
	// before: 0
	// delivered: 1
	// bob reads: the report is ready
}

// A messenger is the tool with which models write to each other. Who is blocked is told at once if nobody listens.
func ExampleMessenger() {
	ctx := context.Background()
	x := exchange.New(exchange.Options{})
	s, _ := session.New(session.Options{Mail: x})
	ann, _ := s.NewBranch(session.BranchOptions{Name: "ann"})
	bob, _ := s.NewBranch(session.BranchOptions{Name: "bob"})
	names := map[string]ident.ID{"ann": ann.ID(), "bob": bob.ID()}
	m := exchange.NewMessenger(x)
	for _, b := range []*session.Branch{ann, bob} {
		_, _ = m.Bind(b, names)
	}
	use := func(b *session.Branch, arguments string) {
		r, _ := b.Act(ctx, message.Call{Tool: exchange.ToolName, Arguments: json.RawMessage(arguments)})
		fmt.Println(b.Name(), r.Text)
	}
	use(ann, `{"action": "send", "to": "bob", "text": "can you check this?"}`)
	_, _ = s.Sync(ctx)
	fmt.Println("bob has", len(s.Receive(bob.ID(), ann.ID())))
	use(bob, `{"action": "finished"}`)
	use(ann, `{"action": "help", "level": "blocked", "text": "who has the key?"}`)
	// Output:
	// ann {"to":["bob"],"state":"working"}
	// bob has 1
	// bob {"to":["ann"],"state":"finished"}
	// ann {"error":"nobody listens, and the call for help was not kept: bob has finished"}
}
