package session

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"soma/ident"
)

// Saved is what is kept of a session: it has a JSON form, which Restore takes back. Not kept are operations, observer and
// history, hooks, memory, tools, models, logs, mailboxes and mail: the program sets them up again.
type Saved struct {
	ID       ident.ID       `json:"id"`
	Created  time.Time      `json:"created"`
	Name     string         `json:"name"`
	User     string         `json:"user,omitempty"`
	Metadata map[string]any `json:"metadata,omitempty"`
	Branches []SavedBranch  `json:"branches"`
	// Default is zero where the session had none.
	Default ident.ID `json:"default,omitzero"`
}

// SavedBranch is what is kept of a branch.
type SavedBranch struct {
	ID       ident.ID       `json:"id"`
	Created  time.Time      `json:"created"`
	Name     string         `json:"name,omitempty"`
	Metadata map[string]any `json:"metadata,omitempty"`
	Messages []Message      `json:"messages"`
	// Visible are the ids of the messages that a model sees; all where it is absent.
	Visible *[]ident.ID `json:"visible,omitempty"`
}

// Save returns what is kept of the session. Each branch is read at one moment; branches that change meanwhile are read at
// different ones.
func (s *Session) Save() Saved {
	s.mu.RLock()
	saved := Saved{ID: s.id, Created: s.created, Name: s.name, User: s.user, Metadata: maps.Clone(s.metadata)}
	branches := slices.Collect(s.members())
	if s.def != nil {
		saved.Default = s.def.id
	}
	s.mu.RUnlock()
	saved.Branches = make([]SavedBranch, 0, len(branches))
	for _, b := range branches {
		saved.Branches = append(saved.Branches, b.save())
	}
	return saved
}

func (b *Branch) save() SavedBranch {
	b.mu.Lock()
	defer b.mu.Unlock()
	saved := SavedBranch{ID: b.id, Created: b.created, Name: b.name, Metadata: maps.Clone(b.metadata), Messages: values(b.messages.all())}
	if b.messages.visible != nil {
		seen := b.messages.seen()
		ids := make([]ident.ID, len(seen))
		for i, m := range seen {
			ids[i] = m.ID
		}
		saved.Visible = &ids
	}
	return saved
}

// Restore makes the session again, with the members in their order and the default that it had, or none. Of the options it
// takes Memory, Mail, History, Log and Now. What cannot have come from Save is refused: the error wraps ErrOwned where two
// branches have one id, ErrNotFound for a visible message that is not there, else ErrInvalid. A zero ID is replaced by a fresh one.
func Restore(saved Saved, o Options) (*Session, error) {
	o.ID, o.Name, o.User, o.Metadata = saved.ID, saved.Name, saved.User, saved.Metadata
	s := prepare(o)
	s.created = saved.Created
	branches := make([]*Branch, 0, len(saved.Branches))
	var def *Branch
	for _, sb := range saved.Branches {
		b, err := sb.restore(s.now)
		if err != nil {
			return nil, fmt.Errorf("cannot restore session %s: branch %s: %w", saved.ID, sb.ID, err)
		}
		branches = append(branches, b)
		if b.id == saved.Default {
			def = b
		}
	}
	if def == nil && !saved.Default.IsZero() {
		return nil, fmt.Errorf("cannot restore session %s: %w default %s: it is not among the branches", saved.ID, ErrInvalid, saved.Default)
	}
	if err := s.include(branches, def); err != nil {
		return nil, fmt.Errorf("cannot restore session %s: %w", saved.ID, err)
	}
	s.def = def
	return s, nil
}

func (sb SavedBranch) restore(now func() time.Time) (*Branch, error) {
	b, err := NewBranch(BranchOptions{ID: sb.ID, Created: sb.Created, Name: sb.Name, Metadata: sb.Metadata, Messages: sb.Messages, Now: now})
	if err != nil {
		return nil, err
	}
	if b.Len() != len(sb.Messages) {
		return nil, fmt.Errorf("%w messages: two have one id, or the system message", ErrInvalid)
	}
	if sb.Visible != nil {
		err = b.SetVisible(*sb.Visible...)
	}
	return b, err
}
