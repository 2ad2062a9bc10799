package session_test

import (
	"slices"
	"testing"
	"time"

	"soma/ident"
	"soma/session"
)

// S-16: the semantics of the store in memory.
func TestInMemory(t *testing.T) {
	var m session.InMemory
	ctx := t.Context()
	store := func(i session.Item) ident.ID {
		t.Helper()
		id, err := m.Store(ctx, i)
		ok(t, err)
		return id
	}
	limit := func(n int) *int { return &n }
	a := store(session.Item{Text: "The cat sat", Tags: []string{"x", "y"}, Metadata: map[string]any{"k": 1, "l": "z"}})
	b := store(session.Item{Text: "a CAT ran", Tags: []string{"y"}, Metadata: map[string]any{"k": 2}})
	store(session.Item{Text: "a dog", Tags: []string{"x"}, Metadata: map[string]any{"k": 1}})
	for name, c := range map[string]struct {
		q    session.Query
		want []string
	}{
		"all":                 {session.Query{}, []string{"The cat sat", "a CAT ran", "a dog"}},
		"any case":            {session.Query{Text: "cAt"}, []string{"The cat sat", "a CAT ran"}},
		"one of the tags":     {session.Query{Tags: []string{"y", "w"}}, []string{"The cat sat", "a CAT ran"}},
		"all of the metadata": {session.Query{Metadata: map[string]any{"k": 1, "l": "z"}}, []string{"The cat sat"}},
		"everything at once":  {session.Query{Text: "a", Tags: []string{"x"}, Metadata: map[string]any{"k": 1}}, []string{"The cat sat", "a dog"}},
		"a key that is not":   {session.Query{Metadata: map[string]any{"n": nil}}, nil},
		"limit last":          {session.Query{Text: "dog", Limit: limit(1)}, []string{"a dog"}},
		"limit":               {session.Query{Limit: limit(2)}, []string{"The cat sat", "a CAT ran"}},
		"none":                {session.Query{Limit: limit(0)}, nil},
		"fewer than none":     {session.Query{Limit: limit(-1)}, nil},
	} {
		items, err := m.Search(ctx, c.q)
		ok(t, err)
		var got []string
		for _, i := range items {
			got = append(got, i.Text)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
	// An id twice keeps one, in its place.
	if id := store(session.Item{ID: a, Text: "changed"}); id != a {
		t.Error("another id")
	}
	items, err := m.Search(ctx, session.Query{})
	ok(t, err)
	if len(items) != 3 || items[0].Text != "changed" {
		t.Errorf("items are %+v", items)
	}
	got, err := m.Retrieve(ctx, b)
	ok(t, err)
	got.Tags[0] = "broken"
	if again, err := m.Retrieve(ctx, b); err != nil || again.Tags[0] != "y" {
		t.Errorf("who reads an item can change the store: %+v, %v", again, err)
	}
	_, err = m.Retrieve(ctx, ident.New(time.Now()))
	wants(t, err, session.ErrNotFound)
	for range 30 {
		store(session.Item{Text: "more"})
	}
	if items, _ := m.Search(ctx, session.Query{}); len(items) != 20 {
		t.Errorf("%d items without a limit", len(items))
	}
}

// S-16, S-18: an explicit store reaches every branch without one, and the first claim stays for good.
func TestFirstClaim(t *testing.T) {
	mine, own := &session.InMemory{}, &session.InMemory{}
	given, bare, used := free(t, session.BranchOptions{Memory: own}), free(t, session.BranchOptions{}), free(t, session.BranchOptions{})
	accessed := used.Memory()
	s := quiet(t, session.Options{Memory: mine, Branches: []*session.Branch{given, bare, used}})
	later, err := s.NewBranch(session.BranchOptions{})
	ok(t, err)
	for name, c := range map[string]struct {
		b    *session.Branch
		want session.Memory
	}{
		"made with one": {given, own}, "without one": {bare, mine}, "asked before": {used, accessed}, "later": {later, mine}, "the default": {s.Default(), mine},
	} {
		if c.b.Memory() != c.want {
			t.Errorf("%s: another store", name)
		}
		id, err := c.b.Memory().Store(t.Context(), session.Item{Text: "x"})
		ok(t, err)
		_, err = s.Remove(c.b.ID())
		ok(t, err)
		other := quiet(t, session.Options{Memory: &session.InMemory{}})
		ok(t, other.Include(c.b))
		if c.b.Memory() != c.want {
			t.Errorf("%s: another store after removal", name)
		}
		if _, err := c.b.Memory().Retrieve(t.Context(), id); err != nil {
			t.Errorf("%s: removal has emptied the store: %v", name, err)
		}
	}
	if s.Memory() != session.Memory(mine) {
		t.Error("the session's store has changed")
	}
	if fresh := quiet(t, session.Options{}); fresh.Memory() != fresh.Default().Memory() {
		t.Error("the session's store is another than the one that it gave")
	}
}
