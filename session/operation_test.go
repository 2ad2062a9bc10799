package session_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"soma/ident"
	"soma/message"
	"soma/session"
)

func returns(v any) session.Operation {
	return func(context.Context, *session.Branch, any) (any, error) { return v, nil }
}

// S-15
func TestOperations(t *testing.T) {
	s := quiet(t, session.Options{})
	early := s.Default()
	late := free(t, session.BranchOptions{})
	ok(t, s.Operations().Register("op", returns(1)))
	wants(t, s.Operations().Register("op", returns(2)), session.ErrExists)
	ok(t, s.Include(late))
	for _, b := range []*session.Branch{early, late} {
		if v, err := b.RunOperation(t.Context(), "op", nil); v != 1 || err != nil {
			t.Errorf("got %v, %v", v, err)
		}
	}
	ok(t, s.Operations().Update("op", returns(2)))
	if v, err := early.RunOperation(t.Context(), "op", nil); v != 2 || err != nil {
		t.Errorf("got %v, %v", v, err)
	}
	_, err := s.Remove(late.ID())
	ok(t, err)
	_, err = late.RunOperation(t.Context(), "op", nil)
	wants(t, err, session.ErrUnknownOperation)
	ok(t, late.Operations().Register("own", returns(3)))
	ok(t, s.Include(late))
	_, err = late.RunOperation(t.Context(), "own", nil)
	wants(t, err, session.ErrUnknownOperation)

	// What every branch has is not to be had otherwise.
	for _, name := range []string{session.OpAct, session.OpInstruct} {
		wants(t, s.Operations().Register(name, returns(1)), session.ErrExists)
		wants(t, s.Operations().Update(name, returns(1)), session.ErrExists)
	}
	if names := s.Operations().Names(); !slices.Equal(names, []string{"op"}) {
		t.Errorf("names are %v", names)
	}
	ok(t, early.SetTool(session.Tool{Name: "t", Run: func(context.Context, jsonRaw) (any, error) { return "x", nil }}))
	if v, err := early.RunOperation(t.Context(), session.OpAct, message.Call{Tool: "t"}); err != nil || v.(session.Message).Text != "x" {
		t.Errorf("act: %v, %v", v, err)
	}
	early.SetModel(echo{})
	ok(t, early.SetTool(session.Tool{Name: "count", Run: func(context.Context, jsonRaw) (any, error) { return 1, nil }}))
	for _, in := range []any{"x", session.Input{Text: "x"}} {
		if v, err := early.RunOperation(t.Context(), session.OpInstruct, in); err != nil || v.(session.Message).Text != "it is 1" {
			t.Errorf("instruct: %v, %v", v, err)
		}
	}
	for name, args := range map[string]any{session.OpAct: 1, session.OpInstruct: 1} {
		if _, err := early.RunOperation(t.Context(), name, args); !errors.Is(err, session.ErrInvalid) {
			t.Errorf("%s of a number: %v", name, err)
		}
	}
}

// S-17
func TestRunOperation(t *testing.T) {
	s := quiet(t, session.Options{})
	wants(t, s.Operations().Register("", returns(1)), session.ErrInvalid)
	wants(t, s.Operations().Register("op", nil), session.ErrInvalid)
	ok(t, s.Operations().Register("where", func(_ context.Context, b *session.Branch, args any) (any, error) {
		return []any{b, args}, nil
	}))
	other, err := s.NewBranch(session.BranchOptions{})
	ok(t, err)
	for id, want := range map[ident.ID]*session.Branch{{}: s.Default(), other.ID(): other} {
		if v, err := s.RunOperation(t.Context(), "where", id, 5); err != nil || !slices.Equal(v.([]any), []any{want, 5}) {
			t.Errorf("ran with %v, %v", v, err)
		}
	}
	_, err = s.RunOperation(t.Context(), "who", ident.ID{}, nil)
	wants(t, err, session.ErrUnknownOperation)
	ok(t, s.Operations().Register("panics", func(context.Context, *session.Branch, any) (any, error) { panic(errTest) }))
	_, err = s.RunOperation(t.Context(), "panics", ident.ID{}, nil)
	wants(t, err, session.ErrPanic)
	wants(t, err, errTest)
}
