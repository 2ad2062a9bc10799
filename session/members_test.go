package session_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"soma/ident"
	"soma/session"
)

// state is everything of a branch that a session may change.
type state struct {
	owner      ident.ID
	owned      bool
	user       string
	operations *session.Operations
	observer   *session.Observer
	hooks      *session.HookBus
}

func look(b *session.Branch) state {
	owner, owned := b.Owner()
	return state{owner, owned, b.User(), b.Operations(), b.Observer(), b.Hooks()}
}

// S-01: one foreign branch refuses the whole batch, and nothing of it has changed.
func TestForeignBranchRefusesBatch(t *testing.T) {
	mail := newBoxes()
	mine, theirs := quiet(t, session.Options{Mail: mail}), quiet(t, session.Options{})
	theirs.Hooks()
	a, b := free(t, session.BranchOptions{User: "someone"}), free(t, session.BranchOptions{})
	for _, batch := range [][]*session.Branch{{a, theirs.Default(), b}, {theirs.Default(), a}, {a, b, theirs.Default()}} {
		before := []state{look(a), look(b), look(theirs.Default())}
		wants(t, mine.Include(batch...), session.ErrOwned)
		if after := []state{look(a), look(b), look(theirs.Default())}; !slices.Equal(before, after) {
			t.Errorf("before %+v, after %+v", before, after)
		}
		if len(mine.Branches()) != 1 || mail.Has(a.ID()) || mail.Has(b.ID()) {
			t.Error("a part of the batch was included")
		}
	}
	wants(t, mine.Include(a, nil, b), session.ErrInvalid)
	if _, owned := a.Owner(); owned {
		t.Error("a batch with nothing in it was included in part")
	}
	// Another branch of the same id would be a second member of that id.
	twin := free(t, session.BranchOptions{ID: mine.Default().ID()})
	wants(t, mine.Include(twin), session.ErrOwned)
	wants(t, mine.Include(a, free(t, session.BranchOptions{ID: a.ID()})), session.ErrOwned)
	if _, owned := a.Owner(); owned {
		t.Error("one of two with an id was included")
	}
	// The store is claimed by an inclusion only: the refused branch takes that of the session which gets it.
	ok(t, theirs.Include(a))
	if a.Memory() != theirs.Memory() {
		t.Error("the refused batch has left a memory")
	}
}

// S-02: what inclusion gives, and S-06: including again repairs and duplicates nothing.
func TestInclude(t *testing.T) {
	mail := newBoxes()
	s := quiet(t, session.Options{Mail: mail})
	own := &session.InMemory{}
	a, b := free(t, session.BranchOptions{User: "someone"}), free(t, session.BranchOptions{Memory: own})
	def := s.Default()
	ok(t, s.Include(a, b, a))
	if got := s.Branches(); !slices.Equal(got, []*session.Branch{def, a, b}) {
		t.Errorf("members are %v", got)
	}
	want := state{s.ID(), true, s.ID().String(), s.Operations(), s.Observer(), nil}
	if look(a) != want || look(b) != want {
		t.Errorf("got %+v and %+v, want %+v", look(a), look(b), want)
	}
	if a.Memory() != s.Memory() || b.Memory() != own {
		t.Error("memory is given to those without one, and only to them")
	}
	if !mail.Has(a.ID()) || !mail.Has(b.ID()) || s.Default() != def {
		t.Error("a mailbox is missing, or the default has changed")
	}

	s.Hooks()
	a.SetUser("other")
	mail.Unregister(a.ID())
	ok(t, s.Include(a))
	want.hooks = s.Hooks()
	if look(a) != want || !mail.Has(a.ID()) || len(s.Branches()) != 3 {
		t.Errorf("not repaired: %+v of %d members", look(a), len(s.Branches()))
	}
	_, err := mail.Send(a.ID(), a.ID(), "kept", "")
	ok(t, err)
	ok(t, s.Include(a))
	if len(mail.Receive(a.ID())) != 1 {
		t.Error("including a member again has emptied its mailbox")
	}
}

// S-03
func TestNew(t *testing.T) {
	a, b := free(t, session.BranchOptions{}), free(t, session.BranchOptions{})
	s := quiet(t, session.Options{Branches: []*session.Branch{a, b}})
	if got := s.Branches(); len(got) != 3 || got[0] != a || got[1] != b || s.Default() != got[2] || s.Default().Len() != 0 {
		t.Errorf("members %v, default %v", got, s.Default())
	}
	if s.Name() != "Session" { // S-08
		t.Errorf("the name is %q", s.Name())
	}
	for _, name := range []string{"among the branches", "beside them"} {
		a, b := free(t, session.BranchOptions{}), free(t, session.BranchOptions{})
		given := []*session.Branch{a, b, a}
		if name == "beside them" {
			given = []*session.Branch{a}
		}
		s := quiet(t, session.Options{Branches: given, Default: b, Name: "n"})
		if got := s.Branches(); !slices.Equal(got, []*session.Branch{a, b}) || s.Default() != b || s.Name() != "n" {
			t.Errorf("%s: members %v, default %v", name, got, s.Default())
		}
	}
	s = quiet(t, session.Options{})
	if got := s.Branches(); len(got) != 1 || got[0] != s.Default() {
		t.Errorf("members %v", got)
	}
}

// S-09: New with a foreign branch fails and touches nothing.
func TestNewWithForeignBranch(t *testing.T) {
	other := quiet(t, session.Options{})
	a := free(t, session.BranchOptions{})
	mail := newBoxes()
	before := []state{look(a), look(other.Default())}
	for _, o := range []session.Options{
		{Branches: []*session.Branch{a, other.Default()}, Mail: mail},
		{Branches: []*session.Branch{a}, Default: other.Default(), Mail: mail},
	} {
		s, err := session.New(o)
		wants(t, err, session.ErrOwned)
		if s != nil || !slices.Equal(before, []state{look(a), look(other.Default())}) || len(mail.of) != 0 {
			t.Error("something was touched")
		}
	}
	if a.Memory() == nil {
		t.Error("no memory of its own")
	}
}

// S-04
func TestGet(t *testing.T) {
	s := quiet(t, session.Options{})
	first, err := s.NewBranch(session.BranchOptions{Name: "x"})
	ok(t, err)
	second, err := s.NewBranch(session.BranchOptions{Name: "x"})
	ok(t, err)
	tricky, err := s.NewBranch(session.BranchOptions{Name: second.ID().String()})
	ok(t, err)
	named, err := s.NewBranch(session.BranchOptions{Name: ident.New(time.Now()).String()})
	ok(t, err)
	outside := free(t, session.BranchOptions{Name: "outside"})
	for ref, want := range map[string]*session.Branch{
		"x": first, second.ID().String(): second, tricky.ID().String(): tricky, named.Name(): named,
		"X": nil, "": s.Default(), "outside": nil, outside.ID().String(): nil,
	} {
		got, err := s.Get(ref)
		if got != want || (err == nil) != (want != nil) || err != nil && !errors.Is(err, session.ErrNotFound) {
			t.Errorf("Get(%q) = %v, %v", ref, got, err)
		}
		if want == nil {
			want = outside
		}
		if got := s.GetOr(ref, outside); got != want {
			t.Errorf("GetOr(%q) = %v", ref, got)
		}
	}
	// Remove, SetDefault and RunOperation take ids, and SetDefault includes nobody.
	wants(t, s.SetDefault(outside.ID()), session.ErrNotFound)
	_, err = s.Remove(outside.ID())
	wants(t, err, session.ErrNotFound)
	_, err = s.RunOperation(t.Context(), "op", outside.ID(), nil)
	wants(t, err, session.ErrNotFound)
	if _, owned := outside.Owner(); owned || len(s.Branches()) != 5 {
		t.Error("a branch was included without being asked to")
	}
	ok(t, s.SetDefault(second.ID()))
	if s.Default() != second {
		t.Error("the default has not changed")
	}
}

// S-05
func TestRemove(t *testing.T) {
	mail := newBoxes()
	s := quiet(t, session.Options{Mail: mail})
	s.Hooks()
	ok(t, s.Operations().Register("op", func(context.Context, *session.Branch, any) (any, error) { return nil, nil }))
	def := s.Default()
	tool := session.Tool{Name: "t", Run: func(context.Context, jsonRaw) (any, error) { return nil, nil }}
	b, err := s.NewBranch(session.BranchOptions{
		Name: "b", System: "be brief", Tools: []session.Tool{tool}, Models: []session.Model{echo{}}, Metadata: map[string]any{"k": 1},
		Messages: []session.Message{{Role: session.Instruction, Text: "one"}},
	})
	ok(t, err)
	b.AddLog("kind", "text")
	memory, messages := b.Memory(), b.Messages()
	_, err = s.Send(b.ID(), b.ID(), "lost", "")
	ok(t, err)

	removed, err := s.Remove(b.ID())
	ok(t, err)
	got := look(b)
	if removed != b || got.owned || got.user != "" || got.observer != nil || got.hooks != nil || got.operations == s.Operations() {
		t.Errorf("still attached: %+v", got)
	}
	if names := b.Operations().Names(); len(names) != 0 {
		t.Errorf("the registry is not empty: %v", names)
	}
	if mail.Has(b.ID()) {
		t.Error("the mailbox is still there")
	}
	if b.Memory() != memory || len(b.Messages()) != 2 || b.Messages()[1].ID != messages[1].ID || len(b.Tools()) != 1 ||
		len(b.Models()) != 1 || len(b.Log()) != 1 || b.Metadata()["k"] != 1 || b.Name() != "b" {
		t.Error("something of the branch's own is gone")
	}
	_, err = s.Remove(b.ID()) // S-06
	wants(t, err, session.ErrNotFound)

	// Another's id stays in User.
	ok(t, s.Include(b))
	b.SetUser("someone")
	if n := len(mail.Receive(b.ID())); n != 0 {
		t.Errorf("%d letters have survived", n)
	}
	_, err = s.Remove(b.ID())
	ok(t, err)
	if b.User() != "someone" {
		t.Errorf("user is %q", b.User())
	}

	// The first one that is left becomes the default, or none.
	c, err := s.NewBranch(session.BranchOptions{})
	ok(t, err)
	_, err = s.Remove(def.ID())
	ok(t, err)
	if s.Default() != c {
		t.Error("the first remaining branch is not the default")
	}
	_, err = s.Remove(c.ID())
	ok(t, err)
	if s.Default() != nil || len(s.Branches()) != 0 {
		t.Error("a default is left")
	}
	_, err = s.RunOperation(t.Context(), "op", ident.ID{}, nil) // S-17
	wants(t, err, session.ErrNoBranch)
	ok(t, s.Include(b))
	if s.Default() != b { // S-02
		t.Error("the first that joins is not the default")
	}
}

// S-06: from one session to another.
func TestReparent(t *testing.T) {
	one, two := quiet(t, session.Options{}), quiet(t, session.Options{})
	b, err := one.NewBranch(session.BranchOptions{})
	ok(t, err)
	memory := b.Memory()
	wants(t, two.Include(b), session.ErrOwned)
	_, err = two.Remove(b.ID())
	wants(t, err, session.ErrNotFound)
	_, err = one.Remove(b.ID())
	ok(t, err)
	ok(t, two.Include(b))
	if owner, _ := b.Owner(); owner != two.ID() || b.Observer() != two.Observer() || b.User() != two.ID().String() {
		t.Errorf("attached as %+v", look(b))
	}
	if b.Memory() != memory || memory != one.Memory() { // S-18
		t.Error("the store has changed")
	}
}

// S-08
func TestNewBranch(t *testing.T) {
	s := quiet(t, session.Options{})
	day := time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)
	b, err := s.NewBranch(session.BranchOptions{
		Name: "b", User: "someone", System: "be brief", SystemSender: "boss", Dated: true, Date: day, AsDefault: true,
		Models: []session.Model{echo{}}, Messages: []session.Message{{Role: session.Instruction, Text: "one"}},
	})
	ok(t, err)
	messages := b.Messages()
	if len(messages) != 2 || messages[0].Role != session.System || messages[0].Sender != "boss" ||
		messages[0].Text != "be brief\n\nDate: 2031-05-06T07:08:09Z" || messages[1].Text != "one" {
		t.Errorf("messages are %+v", messages)
	}
	if s.Default() != b || b.User() != s.ID().String() || b.Name() != "b" || len(b.Models()) != 1 {
		t.Error("an option was not looked at")
	}
	now := time.Date(2032, 1, 1, 0, 0, 0, 0, time.UTC)
	c, err := s.NewBranch(session.BranchOptions{System: "x", Dated: true, Now: func() time.Time { return now }})
	ok(t, err)
	if text := c.Messages()[0].Text; text != "x\n\nDate: 2032-01-01T00:00:00Z" || s.Default() != b {
		t.Errorf("the system text is %q", text)
	}
	for name, o := range map[string]session.BranchOptions{
		"tool":    {Tools: []session.Tool{{Name: "t"}}},
		"message": {Messages: []session.Message{{Role: "who"}}},
	} {
		if _, err := s.NewBranch(o); !errors.Is(err, session.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.NewBranch(session.BranchOptions{ID: b.ID()}); !errors.Is(err, session.ErrOwned) {
		t.Errorf("a second branch of one id: %v", err)
	}
	if len(s.Branches()) != 3 {
		t.Error("a branch that could not be made is a member")
	}
}
