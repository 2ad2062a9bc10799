package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"soma/ident"
	"soma/message"
	"soma/session"
)

type jsonRaw = json.RawMessage

func texts(ms []session.Message) []string {
	out := []string{}
	for _, m := range ms {
		out = append(out, m.Text)
	}
	return out
}

func say(t *testing.T, b *session.Branch, role session.Role, text string) session.Message {
	t.Helper()
	m, err := b.Add(session.Message{Role: role, Text: text, Sender: b.ID().String(), Recipient: "me"})
	ok(t, err)
	return m
}

// S-10: the system message is the first and the only one of its kind.
func TestSystemMessage(t *testing.T) {
	b := free(t, session.BranchOptions{})
	say(t, b, session.Instruction, "one")
	first := say(t, b, session.System, "sys")
	say(t, b, session.Assistant, "two")
	if got := texts(b.Messages()); !slices.Equal(got, []string{"sys", "one", "two"}) {
		t.Errorf("messages are %q", got)
	}
	second := say(t, b, session.System, "other")
	if got := texts(b.Messages()); !slices.Equal(got, []string{"other", "one", "two"}) {
		t.Errorf("messages are %q", got)
	}
	_, err := b.Message(first.ID)
	wants(t, err, session.ErrNotFound)
	if m, err := b.Message(second.ID); err != nil || m.Text != "other" {
		t.Errorf("got %v, %v", m, err)
	}
	_, err = b.Add(session.Message{ID: second.ID, Role: session.Instruction})
	wants(t, err, session.ErrInvalid)
	_, err = b.Add(session.Message{ID: b.Messages()[1].ID, Role: session.System})
	wants(t, err, session.ErrInvalid)
	if got := texts(b.Messages()); !slices.Equal(got, []string{"other", "one", "two"}) {
		t.Errorf("a refused message has changed them to %q", got)
	}
}

// S-10: what a model sees, and that nothing is deleted by it.
func TestVisible(t *testing.T) {
	b := free(t, session.BranchOptions{})
	var ids []ident.ID
	for i := range 5 {
		ids = append(ids, say(t, b, session.Instruction, fmt.Sprint(i)).ID)
	}
	ok(t, b.SetVisible(ids[3], ids[1], ids[3]))
	say(t, b, session.Assistant, "5")
	want := []string{"1", "3", "5"}
	if got := texts(b.Visible()); !slices.Equal(got, want) {
		t.Errorf("visible are %q", got)
	}
	wants(t, b.SetVisible(ids[0], ident.New(b.Created())), session.ErrNotFound)
	if got := texts(b.Visible()); !slices.Equal(got, want) || b.Len() != 6 {
		t.Errorf("visible are %q of %d", got, b.Len())
	}
	clone := b.Clone()
	say(t, b, session.System, "sys") // moves all positions
	if got := texts(b.Visible()); !slices.Equal(got, []string{"sys", "1", "3", "5"}) {
		t.Errorf("visible are %q", got)
	}
	if got := texts(clone.Visible()); !slices.Equal(got, want) { // S-12
		t.Errorf("the clone sees %q", got)
	}
	ok(t, b.SetVisible())
	if len(b.Visible()) != 0 {
		t.Error("the empty subset shows something")
	}
	b.ShowAll()
	if len(b.Visible()) != 7 {
		t.Error("not all are shown")
	}
}

// S-10: log and metadata are the branch's; the log is bounded.
func TestLog(t *testing.T) {
	b := free(t, session.BranchOptions{})
	for i := range 3 * session.LogSize {
		b.AddLog("k", fmt.Sprint(i))
		if i%400 == 0 {
			if log := b.Log(); log[len(log)-1].Text != fmt.Sprint(i) || len(log) != min(i+1, session.LogSize) {
				t.Fatalf("after %d entries there are %d", i, len(log))
			}
		}
	}
	if log := b.Log(); log[0].Text != fmt.Sprint(2*session.LogSize) || len(log) != session.LogSize {
		t.Errorf("the log begins with %v and has %d entries", log[0], len(log))
	}
}

// S-11
func TestAdd(t *testing.T) {
	b := free(t, session.BranchOptions{})
	m := say(t, b, session.Instruction, "one")
	say(t, b, session.Instruction, "two")
	_, err := b.Add(session.Message{ID: m.ID, Role: session.Instruction, Text: "changed"})
	ok(t, err)
	if got := texts(b.Messages()); !slices.Equal(got, []string{"changed", "two"}) {
		t.Errorf("messages are %q", got)
	}

	var told []string
	tell := func(name string, err error) session.Persist {
		return func(_ context.Context, of *session.Branch, m session.Message) error {
			if of != b || len(of.Messages()) == 0 { // no lock is held
				t.Error("another branch")
			}
			told = append(told, name+m.Text)
			return err
		}
	}
	other := errors.New("another")
	removeFirst := b.OnMessage(tell("a:", errTest))
	b.OnMessage(tell("b:", nil))
	removePanic := b.OnMessage(func(context.Context, *session.Branch, session.Message) error { panic(other) })
	_, err = b.Add(session.Message{Role: session.Instruction, Text: "three"})
	wants(t, err, session.ErrNeedsContext)
	if b.Len() != 2 || len(told) != 0 {
		t.Error("a refused message has changed something")
	}
	m, err = b.AddContext(t.Context(), session.Message{Role: session.Instruction, Text: "three"})
	wants(t, err, errTest)
	wants(t, err, other)
	wants(t, err, session.ErrPanic)
	if got := texts(b.Messages()); !slices.Equal(got, []string{"changed", "two", "three"}) || m.Text != "three" {
		t.Errorf("messages are %q", got)
	}
	if !slices.Equal(told, []string{"a:three", "b:three"}) {
		t.Errorf("told %q", told)
	}
	removeFirst()
	removePanic()
	removePanic()
	_, err = b.AddContext(t.Context(), session.Message{Role: "who"})
	wants(t, err, session.ErrInvalid)
	_, err = b.AddContext(t.Context(), session.Message{Role: session.Instruction, Text: "four"})
	ok(t, err)
	if !slices.Equal(told[2:], []string{"b:four"}) {
		t.Errorf("told %q", told)
	}
	for _, m := range []session.Message{
		{Role: session.Instruction, Call: &message.Call{Tool: "t"}}, {Role: session.ActionRequest}, {Role: session.ActionRequest, Call: &message.Call{}},
		{Role: session.ActionResponse}, {},
	} {
		if _, err := b.AddContext(t.Context(), m); !errors.Is(err, session.ErrInvalid) {
			t.Errorf("%+v: %v", m, err)
		}
	}
}

// S-12: what a clone is.
func TestSplit(t *testing.T) {
	s := quiet(t, session.Options{Memory: &session.InMemory{}})
	own := &session.InMemory{}
	b, err := s.NewBranch(session.BranchOptions{
		Name: "origin", System: "sys", Memory: own, Models: []session.Model{echo{}}, Metadata: map[string]any{"k": 1},
		Tools: []session.Tool{{Name: "t", Run: func(context.Context, jsonRaw) (any, error) { return "done", nil }}},
	})
	ok(t, err)
	b.OnMessage(func(context.Context, *session.Branch, session.Message) error { return nil })
	_, err = b.Act(t.Context(), message.Call{Tool: "t"})
	ok(t, err)
	_, err = b.AddContext(t.Context(), session.Message{Role: session.Assistant, Text: "hi", Sender: b.ID().String(), Recipient: "me"})
	ok(t, err)
	ok(t, b.SetVisible(b.Messages()[3].ID))

	c, err := s.Split(b.ID())
	ok(t, err)
	again, err := s.Split(b.ID())
	ok(t, err)
	from, to := b.Messages(), c.Messages()
	if len(to) != 4 || c.ID() == b.ID() {
		t.Fatalf("%d messages", len(to))
	}
	for i, m := range to {
		// M-09: the id follows from the clone and the source, so nothing has to be remembered.
		if m.Source != from[i].ID || m.ID != ident.Derive(c.ID(), string(from[i].ID[:])) || m.ID == again.Messages()[i].ID || m.Text != from[i].Text {
			t.Errorf("message %d is %+v", i, m)
		}
		if got, err := c.Message(m.ID); err != nil || got.Source != m.Source {
			t.Errorf("message %d is not found: %v", i, err)
		}
	}
	if to[1].Sender != c.ID().String() || to[3].Sender != c.ID().String() || to[3].Recipient != "me" || from[3].Sender != b.ID().String() {
		t.Errorf("the sender is %q", to[3].Sender)
	}
	if to[2].Request != to[1].ID || from[2].Request != from[1].ID {
		t.Error("the response is not linked to its request")
	}
	if got := c.Visible(); len(got) != 1 || got[0].ID != to[3].ID {
		t.Errorf("visible are %+v", got)
	}
	if c.Name() != "" || c.Memory() != s.Memory() || len(c.Log()) != 0 || len(b.Log()) == 0 || c.Metadata()["k"] != 1 || len(c.Models()) != 1 {
		t.Error("something is copied that is not to be, or the reverse")
	}
	if owner, _ := c.Owner(); owner != s.ID() || c.Observer() != s.Observer() {
		t.Error("the clone has not joined")
	}
	_, err = c.Add(session.Message{Role: session.Instruction}) // callbacks are not copied
	ok(t, err)
	if r, err := c.Act(t.Context(), message.Call{Tool: "t"}); err != nil || r.Text != "done" {
		t.Errorf("the tool: %+v, %v", r, err)
	}
	ok(t, c.SetTool(session.Tool{Name: "u", Run: func(context.Context, jsonRaw) (any, error) { return nil, nil }}))
	if !again.DropTool("t") || again.DropTool("t") || len(again.Tools()) != 0 || len(b.Tools()) != 1 || len(c.Tools()) != 2 || c.Tools()[1].Name != "u" {
		t.Error("tools of one side have changed with the other's")
	}
	_, err = s.Split(ident.ID{})
	wants(t, err, session.ErrNotFound)
	if clone := b.Clone(); clone.Observer() != nil || clone.Hooks() != nil || clone.Memory() == own {
		t.Error("a free clone is attached")
	}
}

// S-12: either side changes without the other, also clones of clones, and ids of a clone replace in place.
func TestClonesAreApart(t *testing.T) {
	b := free(t, session.BranchOptions{System: "sys"})
	one := say(t, b, session.Instruction, "one")
	c := b.Clone()
	say(t, b, session.Instruction, "b")
	say(t, c, session.Instruction, "c")
	d := c.Clone()
	_, err := b.Add(session.Message{ID: one.ID, Role: session.Instruction, Text: "changed"})
	ok(t, err)
	say(t, c, session.System, "sys of c")
	say(t, d, session.Instruction, "d")
	_, err = d.Add(session.Message{ID: d.Messages()[1].ID, Role: session.Instruction, Text: "one of d"})
	ok(t, err)
	e := d.Clone()
	say(t, d, session.Instruction, "last")
	for name, check := range map[string]struct {
		b    *session.Branch
		want []string
	}{
		"b": {b, []string{"sys", "changed", "b"}}, "c": {c, []string{"sys of c", "one", "c"}},
		"d": {d, []string{"sys", "one of d", "c", "d", "last"}}, "e": {e, []string{"sys", "one of d", "c", "d"}},
	} {
		if got := texts(check.b.Messages()); !slices.Equal(got, check.want) || check.b.Len() != len(check.want) {
			t.Errorf("%s has %q (%d), want %q", name, got, check.b.Len(), check.want)
		}
		ids := map[ident.ID]bool{}
		for _, m := range check.b.Messages() {
			ids[m.ID] = true
		}
		if len(ids) != len(check.want) {
			t.Errorf("%s has ids twice", name)
		}
	}
	// Found by id before and after its copies were worked out, own ones and those of the origin.
	f := d.Clone()
	own := say(t, f, session.Instruction, "own")
	source := d.Messages()[0].ID
	for _, id := range []ident.ID{own.ID, ident.Derive(f.ID(), string(source[:])), own.ID} {
		if m, err := f.Message(id); err != nil || m.ID != id {
			t.Errorf("%s: %+v, %v", id, m, err)
		}
	}
	// A chain of clones that nobody has read.
	last := b
	for range 50 {
		last = last.Clone()
		say(t, last, session.Instruction, "+")
	}
	if got := last.Messages(); len(got) != 53 || got[1].Text != "changed" || got[52].Text != "+" {
		t.Errorf("%d messages", len(got))
	}
}

// S-12: a split costs the same whatever the number of messages. What it allocates stands for what it copies.
func TestSplitIsConstant(t *testing.T) {
	cost := func(n int) float64 {
		s := quiet(t, session.Options{})
		b := s.Default()
		for range n {
			say(t, b, session.Instruction, "text")
		}
		return testing.AllocsPerRun(20, func() {
			_, err := s.Split(b.ID())
			ok(t, err)
		})
	}
	if small, large := cost(1), cost(10_000); large > small+1 {
		t.Errorf("%v allocations at 1 message, %v at 10,000", small, large)
	}
}

// S-51: a clone that is there already takes the messages of another branch.
func TestInherit(t *testing.T) {
	b, c := free(t, session.BranchOptions{}), free(t, session.BranchOptions{})
	say(t, c, session.Instruction, "gone")
	m := say(t, b, session.Instruction, "one")
	ok(t, c.Inherit(b))
	say(t, b, session.Instruction, "two")
	if got := c.Messages(); len(got) != 1 || got[0].Source != m.ID || got[0].Sender != c.ID().String() {
		t.Errorf("messages are %+v", got)
	}
	wants(t, b.Inherit(b), session.ErrInvalid)
	wants(t, b.Inherit(nil), session.ErrInvalid)
	c.OnMessage(func(context.Context, *session.Branch, session.Message) error { return nil })
	wants(t, c.Inherit(b), session.ErrNeedsContext)
}

// S-10: the messages in the form of providers, paired as package message wants it.
func TestConversation(t *testing.T) {
	b := free(t, session.BranchOptions{System: "sys"})
	add := func(m session.Message) session.Message {
		t.Helper()
		m, err := b.Add(m)
		ok(t, err)
		return m
	}
	request := func(call, tool string) session.Message {
		return add(session.Message{Role: session.ActionRequest, Call: &message.Call{ID: call, Tool: tool}})
	}
	add(session.Message{Role: session.Instruction, Text: "do"})
	add(session.Message{Role: session.Assistant, Text: "calling"})
	x, y := request("x", "t"), request("", "u")
	add(session.Message{Role: session.ActionResponse, Request: y.ID, Text: "second"})
	add(session.Message{Role: session.ActionResponse, Request: x.ID, Text: "first", Status: message.OK})
	add(session.Message{Role: session.Assistant, Text: "done"})
	z := request("z", "t")
	add(session.Message{Role: session.ActionResponse, Request: z.ID, Text: "by hand"})
	got, err := b.Conversation()
	ok(t, err)
	var lines []string
	for _, m := range got {
		lines = append(lines, fmt.Sprintf("%s %s %s %d", m.Role, m.Text, m.CallID, len(m.Calls)))
	}
	want := []string{
		"system sys  0", "user do  0", "assistant calling  2", "tool first x 0", "tool second " + y.ID.String() + " 0",
		"assistant done  1", "tool by hand z 0",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("got %q", lines)
	}
	clone, err := b.Clone().Conversation()
	ok(t, err)
	if len(clone) != len(got) {
		t.Error("the clone's conversation differs")
	}
	ok(t, b.SetVisible(x.ID))
	if _, err := b.Conversation(); err == nil {
		t.Error("a request without its response passes")
	}
	ok(t, b.SetVisible(b.Messages()[5].ID))
	if _, err := b.Conversation(); err == nil {
		t.Error("a response without its request passes")
	}
}
