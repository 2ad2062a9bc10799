package session

import (
	"bytes"
	"fmt"
	"iter"
	"slices"

	"soma/ident"
)

// Include makes the branches members, in the order given. Who belongs to another session, or has the id of another member,
// refuses the whole batch with ErrOwned; a nil branch with ErrInvalid: no branch has been changed then. Nothing else can
// fail.
//
// For each branch, in this order: it is added if it is absent; owner and User become the session's id; it shares the
// operations, has the observer, the hook bus if that has been made, the session's memory if it has no store, a mailbox if
// it has none, and is the default if there is none. Including a member again repairs what is missing and changes nothing
// else.
func (s *Session) Include(branches ...*Branch) error {
	if err := s.include(branches, nil); err != nil {
		return fmt.Errorf("cannot include: %w", err)
	}
	return nil
}

// include also makes def, one of the batch, the default.
func (s *Session) include(branches []*Branch, def *Branch) error {
	sorted, err := distinct(branches)
	if err != nil {
		return err
	}
	for _, b := range sorted {
		b.member.Lock()
	}
	defer func() {
		for _, b := range sorted {
			b.member.Unlock()
		}
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range sorted {
		if owner := b.at.Load().owner; owner != nil && owner != s {
			return fmt.Errorf("%w: branch %s is a member of session %s", ErrOwned, b.id, owner.id)
		}
		if other := s.member(b.id); other != nil && other != b {
			return fmt.Errorf("%w: session %s has another branch with the id %s", ErrOwned, s.id, b.id)
		}
	}
	for _, b := range branches {
		s.join(b)
	}
	if def != nil {
		s.def = def
	}
	return nil
}

// distinct returns the branches once each in the order of their ids, which is the order in which they are locked.
func distinct(branches []*Branch) ([]*Branch, error) {
	for i, b := range branches {
		if b == nil {
			return nil, fmt.Errorf("%w branch: number %d is nil", ErrInvalid, i)
		}
	}
	sorted := slices.Clone(branches)
	slices.SortFunc(sorted, func(x, y *Branch) int { return bytes.Compare(x.id[:], y.id[:]) })
	sorted = slices.Compact(sorted)
	for i := 1; i < len(sorted); i++ {
		if id := sorted[i].id; id == sorted[i-1].id {
			return nil, fmt.Errorf("%w: two branches have the id %s", ErrOwned, id)
		}
	}
	return sorted, nil
}

// join makes b a member. mu and b's member lock are held, and b is free or a member already.
func (s *Session) join(b *Branch) {
	if s.member(b.id) == nil {
		s.byID[b.id] = s.order.PushBack(b)
	}
	b.attach(func(a *attachment) {
		*a = attachment{owner: s, user: s.id.String(), operations: s.operations, observer: s.observer, hooks: s.hooks}
	})
	if b.memory.Load() == nil {
		b.claim(s.store())
	}
	if s.mail != nil && !s.mail.Has(b.id) {
		// A participant may have registered the id at this moment: a mailbox is there in any case.
		_ = s.mail.Register(b.id)
	}
	if s.def == nil {
		s.def = b
	}
}

// Remove makes a member a free branch: it leaves the set, its mailbox goes with all that is in it, owner, observer and
// hooks are cleared, the registry is a fresh empty one, and User is cleared if it still is the session's id. If it was the
// default, the first branch that is left becomes it. Messages, their order, model, tools, log, metadata and memory stay
// with the branch. The error wraps ErrNotFound where the id is no member's; nothing has changed then.
//
// A branch joins another session by Remove there and Include here, never at one stroke.
func (s *Session) Remove(id ident.ID) (*Branch, error) {
	b, err := s.Branch(id)
	if err != nil {
		return nil, fmt.Errorf("cannot remove: %w", err)
	}
	b.member.Lock()
	defer b.member.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.member(id) != b {
		return nil, fmt.Errorf("cannot remove: branch %s %w", id, ErrNotFound)
	}
	s.order.Remove(s.byID[id])
	delete(s.byID, id)
	if s.mail != nil {
		s.mail.Unregister(id)
	}
	own := s.id.String()
	b.attach(func(a *attachment) {
		user := a.user
		if user == own {
			user = ""
		}
		*a = attachment{user: user, operations: &Operations{}}
	})
	b.unroute()
	if s.def == b {
		s.def = nil
		if first := s.order.Front(); first != nil {
			s.def = first.Value.(*Branch)
		}
	}
	return b, nil
}

// member returns the member with this id; nil without one. mu is held.
func (s *Session) member(id ident.ID) *Branch {
	if at := s.byID[id]; at != nil {
		return at.Value.(*Branch)
	}
	return nil
}

// members yields the members in order. mu is held.
func (s *Session) members() iter.Seq[*Branch] {
	return func(yield func(*Branch) bool) {
		for at := s.order.Front(); at != nil; at = at.Next() {
			if !yield(at.Value.(*Branch)) {
				return
			}
		}
	}
}

// NewBranch makes a branch and includes it; AsDefault makes it the default. The error wraps ErrInvalid, or ErrOwned where
// the options name the id of another member.
func (s *Session) NewBranch(o BranchOptions) (*Branch, error) {
	if o.Now == nil {
		o.Now = s.now
	}
	b, err := NewBranch(o)
	if err != nil {
		return nil, err
	}
	var def *Branch
	if o.AsDefault {
		def = b
	}
	if err := s.include([]*Branch{b}, def); err != nil {
		return nil, fmt.Errorf("cannot make a branch: %w", err)
	}
	return b, nil
}

// Split clones a member (see Branch.Clone) and includes the clone. The clone gets the session's memory, not that of its
// origin. The error wraps ErrNotFound.
func (s *Session) Split(id ident.ID) (*Branch, error) {
	b, err := s.Branch(id)
	if err != nil {
		return nil, fmt.Errorf("cannot split: %w", err)
	}
	clone := b.Clone()
	if err := s.include([]*Branch{clone}, nil); err != nil {
		return nil, fmt.Errorf("cannot split: %w", err)
	}
	return clone, nil
}

// Default is the branch that is meant where none is named; nil without one.
func (s *Session) Default() *Branch {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.def
}

// SetDefault makes a member the default. The error wraps ErrNotFound where the id is no member's: nothing is included.
func (s *Session) SetDefault(id ident.ID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.member(id)
	if b == nil {
		return fmt.Errorf("cannot set the default: branch %s %w", id, ErrNotFound)
	}
	s.def = b
	return nil
}

// Branches returns the members in the order in which they joined.
func (s *Session) Branches() []*Branch {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.AppendSeq(make([]*Branch, 0, s.order.Len()), s.members())
}

// Branch finds a member by its id. The error wraps ErrNotFound.
func (s *Session) Branch(id ident.ID) (*Branch, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if b := s.member(id); b != nil {
		return b, nil
	}
	return nil, fmt.Errorf("branch %s %w", id, ErrNotFound)
}

// Get finds a member by the text of its id, else the first in order that has exactly this name. The error wraps ErrNotFound.
func (s *Session) Get(ref string) (*Branch, error) {
	if id, err := ident.Parse(ref); err == nil {
		if b, err := s.Branch(id); err == nil {
			return b, nil
		}
	}
	for _, b := range s.Branches() {
		if b.Name() == ref {
			return b, nil
		}
	}
	return nil, fmt.Errorf("branch %q %w", ref, ErrNotFound)
}

// GetOr is Get that returns other where nothing is found.
func (s *Session) GetOr(ref string, other *Branch) *Branch {
	if b, err := s.Get(ref); err == nil {
		return b
	}
	return other
}
