package session

import (
	"testing"

	"soma/ident"
)

// spyMail looks at a branch at the moment in which its mailbox is made.
type spyMail struct {
	Mail
	at func()
}

func (spyMail) Has(ident.ID) bool { return false }

func (m spyMail) Register(ident.ID) error { m.at(); return nil }

// S-02: the order. The mailbox comes after everything that the branch is given, and before it becomes the default.
func TestOrderOfInclusion(t *testing.T) {
	s := prepare(Options{})
	s.Hooks()
	b, err := NewBranch(BranchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	s.mail = spyMail{at: func() {
		seen++
		a := b.at.Load()
		if s.member(b.id) != b || s.order.Len() != 1 || a.owner != s || a.user != s.id.String() || a.operations != s.operations ||
			a.observer != s.observer || a.hooks != s.hooks || a.hooks == nil || *b.memory.Load() != s.memory {
			t.Error("the mailbox is made before the branch has joined")
		}
		if s.def != nil {
			t.Error("the branch is the default before it has a mailbox")
		}
	}}
	if err := s.Include(b); err != nil {
		t.Fatal(err)
	}
	if seen != 1 || s.def != b {
		t.Errorf("the mailbox was made %d times, the default is %v", seen, s.def)
	}
}

// S-09: a session keeps no second copy: a branch's messages stand in one array, also of a clone that has changed nothing.
func TestNoSecondCopy(t *testing.T) {
	b, err := NewBranch(BranchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if _, err := b.Add(Message{Role: Instruction}); err != nil {
			t.Fatal(err)
		}
	}
	first := b.messages.own[0]
	s, err := New(Options{Branches: []*Branch{b}})
	if err != nil {
		t.Fatal(err)
	}
	clone, err := s.Split(b.id)
	if err != nil {
		t.Fatal(err)
	}
	if len(clone.messages.own) != 0 || clone.messages.origin.own[0] != first || b.messages.own[0] != first {
		t.Error("messages were copied")
	}
	if _, err := clone.Add(Message{Role: Instruction}); err != nil {
		t.Fatal(err)
	}
	if len(clone.messages.own) != 1 || clone.messages.origin == nil {
		t.Error("a message that joins a clone makes it copy the others")
	}
}
