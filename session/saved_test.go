package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"soma/ident"
	"soma/message"
	"soma/session"
)

// S-07, S-03: what is kept comes back, nothing else does, and no branch is added.
func TestSaveAndRestore(t *testing.T) {
	mail := newBoxes()
	s := quiet(t, session.Options{Name: "n", User: "ann", Metadata: map[string]any{"k": "v"}, Mail: mail})
	s.SetMetadata("l", "w")
	s.SetMetadata("k", nil)
	ok(t, s.Operations().Register("op", returns(1)))
	b, err := s.NewBranch(session.BranchOptions{Name: "b", System: "sys", Metadata: map[string]any{"m": true}, AsDefault: true})
	ok(t, err)
	ok(t, b.SetTool(session.Tool{Name: "t", Run: func(context.Context, jsonRaw) (any, error) { return []int{1}, nil }}))
	_, err = b.Act(t.Context(), message.Call{ID: "1", Tool: "t", Arguments: jsonRaw(`{"a":1}`)})
	ok(t, err)
	ok(t, b.SetVisible(b.Messages()[0].ID))
	clone, err := s.Split(b.ID())
	ok(t, err)
	_, err = s.Memory().Store(t.Context(), session.Item{Text: "gone"})
	ok(t, err)
	_, err = s.Send(b.ID(), clone.ID(), "gone", "")
	ok(t, err)
	s.Hooks()

	text, err := json.Marshal(s.Save())
	ok(t, err)
	var saved session.Saved
	ok(t, json.Unmarshal(text, &saved))
	again := newBoxes()
	r, err := session.Restore(saved, session.Options{Mail: again, Name: "ignored"})
	ok(t, err)
	if r.ID() != s.ID() || !r.Created().Equal(s.Created()) || r.Name() != "n" || r.User() != "ann" || len(r.Metadata()) != 1 || r.Metadata()["l"] != "w" {
		t.Errorf("restored as %+v", r.Save())
	}
	if len(r.Branches()) != 3 || r.Default().ID() != b.ID() {
		t.Fatalf("%d branches, the default is %v", len(r.Branches()), r.Default().ID())
	}
	for i, was := range s.Branches() {
		is := r.Branches()[i]
		old, _ := json.Marshal(was.Messages())
		now, _ := json.Marshal(is.Messages())
		if is.ID() != was.ID() || is.Name() != was.Name() || string(old) != string(now) || !slices.Equal(texts(is.Visible()), texts(was.Visible())) {
			t.Errorf("branch %d is %+v", i, is.Messages())
		}
		if is.User() != r.ID().String() || is.Memory() != r.Memory() || !again.Has(is.ID()) || len(is.Tools()) != 0 {
			t.Errorf("branch %d is not attached", i)
		}
	}
	if r.Branches()[1].Metadata()["m"] != true {
		t.Error("metadata of a branch is gone")
	}
	if items, _ := r.Memory().Search(t.Context(), session.Query{}); len(items) != 0 || r.Observer().Len() != 0 || len(r.Operations().Names()) != 0 ||
		r.Default().Hooks() != nil || len(again.Receive(clone.ID())) != 0 {
		t.Error("something was restored that is to begin empty")
	}
	back, err := json.Marshal(r.Save())
	ok(t, err)
	if string(back) != string(text) {
		t.Errorf("saved again:\n%s\nbefore:\n%s", back, text)
	}

	// Without a default there is none.
	empty := quiet(t, session.Options{})
	_, err = empty.Remove(empty.Default().ID())
	ok(t, err)
	r, err = session.Restore(empty.Save(), session.Options{})
	ok(t, err)
	if r.Default() != nil || len(r.Branches()) != 0 {
		t.Error("a branch was added")
	}
	without := s.Save()
	without.Default = ident.ID{}
	r, err = session.Restore(without, session.Options{})
	ok(t, err)
	if r.Default() != nil || len(r.Branches()) != 3 {
		t.Error("a default was chosen")
	}
}

// S-07: what cannot have been saved is refused.
func TestRestoreRefuses(t *testing.T) {
	m := session.Message{ID: ident.New(time.Now()), Role: session.Instruction}
	sys := session.Message{Role: session.System}
	for name, saved := range map[string]session.Saved{
		"default": {Default: ident.New(time.Now())},
		"role":    {Branches: []session.SavedBranch{{ID: m.ID, Messages: []session.Message{{}}}}},
		"twice":   {Branches: []session.SavedBranch{{ID: m.ID, Messages: []session.Message{m, m}}}},
		"systems": {Branches: []session.SavedBranch{{ID: m.ID, Messages: []session.Message{sys, sys}}}},
	} {
		if _, err := session.Restore(saved, session.Options{}); !errors.Is(err, session.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := session.Restore(session.Saved{Branches: []session.SavedBranch{{ID: m.ID}, {ID: m.ID}}}, session.Options{})
	wants(t, err, session.ErrOwned)
	_, err = session.Restore(session.Saved{Branches: []session.SavedBranch{{ID: m.ID, Visible: &[]ident.ID{m.ID}}}}, session.Options{})
	wants(t, err, session.ErrNotFound)
}

// S-47: a session's own mail goes to what it was given, and without that nothing happens.
func TestMail(t *testing.T) {
	mail := newBoxes()
	s := quiet(t, session.Options{Mail: mail})
	who := ident.New(time.Now())
	ok(t, s.RegisterParticipant(who))
	wants(t, s.RegisterParticipant(who), session.ErrExists)
	_, err := s.Send(who, s.Default().ID(), "hi", "ch")
	ok(t, err)
	if got := s.Receive(s.Default().ID()); len(got) != 1 || got[0].Channel != "ch" {
		t.Errorf("received %+v", got)
	}
	if l, ok := s.Pop(s.Default().ID(), who); !ok || l.Content != "hi" {
		t.Errorf("popped %+v", l)
	}
	if n, err := s.Collect(t.Context(), who); n != 3 || err != nil {
		t.Errorf("collected %d, %v", n, err)
	}
	if n, err := s.Sync(t.Context()); n != 7 || err != nil {
		t.Errorf("synced %d, %v", n, err)
	}
	if s.Mail() != session.Mail(mail) {
		t.Error("another mail")
	}
	_, err = s.Send(ident.New(time.Now()), who, "x", "")
	wants(t, err, session.ErrNotFound)

	bare := quiet(t, session.Options{})
	wants(t, bare.RegisterParticipant(who), session.ErrNoMail)
	_, err = bare.Send(who, who, "x", "")
	wants(t, err, session.ErrNoMail)
	_, err = bare.Collect(t.Context(), who)
	wants(t, err, session.ErrNoMail)
	_, err = bare.Sync(t.Context())
	wants(t, err, session.ErrNoMail)
	if _, ok := bare.Pop(who, who); ok || bare.Receive(who) != nil {
		t.Error("there is mail without mailboxes")
	}
}
