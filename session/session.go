package session

import (
	"container/list"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"soma/hook"
	"soma/ident"
)

// Session is a set of branches and what they share: one registry of operations, one observer, one hook bus, one default
// memory, one set of mailboxes, and a default branch. It keeps no copy of what its branches own.
//
// All methods may be called from any goroutine; Include, Remove, NewBranch, Split and SetDefault also on sessions that
// share branches: of two that include one branch at once exactly one gets it, and nobody sees a branch that has joined by
// half. A session needs no end: what nobody refers to any more is collected, and nothing runs in the background.
type Session struct {
	id         ident.ID
	created    time.Time
	now        func() time.Time
	log        *slog.Logger
	operations *Operations
	observer   *Observer
	mail       Mail

	mu       sync.RWMutex // guards what follows; taken after the member locks of branches
	name     string
	user     string
	metadata map[string]any
	byID     map[ident.ID]*list.Element // of order
	order    list.List                  // of *Branch
	def      *Branch
	hooks    *HookBus
	memory   Memory
}

// Options say how a session is made. The zero value is usable.
type Options struct {
	// ID is for a session that has an id elsewhere; zero makes a fresh one.
	ID ident.ID
	// Name is "Session" where it is empty.
	Name string
	// User is the person for whom the session works. Branch.User is another thing.
	User     string
	Metadata map[string]any
	// Branches are the first members, in order, and Default the default branch, which is a member too. Without Default a
	// fresh branch is made and becomes it, behind Branches.
	Branches []*Branch
	Default  *Branch
	// Memory is what each branch gets that has no store of its own. Without it one in memory is made when it is needed
	// first. It cannot be set later.
	Memory Memory
	// Mail gives each member a mailbox; nil means that there are none.
	Mail Mail
	// History is the number of events that the observer keeps; 0 means DefaultHistory.
	History int
	// Log gets the errors that concern nobody else; nil means [slog.Default].
	Log *slog.Logger
	// Now is the clock; nil means [time.Now].
	Now func() time.Time
}

// New makes a session. The error wraps ErrOwned where a branch of the options belongs to another session, ErrInvalid for a
// nil branch; no branch has been changed then.
func New(o Options) (*Session, error) {
	s := prepare(o)
	branches, def := slices.Clone(o.Branches), o.Default
	if def == nil {
		var err error
		if def, err = NewBranch(BranchOptions{Now: s.now}); err != nil {
			return nil, err
		}
	}
	if !slices.Contains(branches, def) {
		branches = append(branches, def)
	}
	if err := s.include(branches, def); err != nil {
		return nil, fmt.Errorf("cannot make a session: %w", err)
	}
	return s, nil
}

// prepare makes a session without branches.
func prepare(o Options) *Session {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.ID.IsZero() {
		o.ID = ident.New(o.Now())
	}
	if o.Name == "" {
		o.Name = "Session"
	}
	return &Session{
		id: o.ID, created: o.Now(), now: o.Now, log: o.Log, name: o.Name, user: o.User, metadata: maps.Clone(o.Metadata),
		operations: &Operations{}, observer: NewObserver(ObserverOptions{History: o.History, Log: o.Log, Now: o.Now}),
		mail: o.Mail, memory: o.Memory, byID: map[ident.ID]*list.Element{},
	}
}

// ID names the session for good.
func (s *Session) ID() ident.ID { return s.id }

// Created is when the session was made first.
func (s *Session) Created() time.Time { return s.created }

// Observer is the session's for good.
func (s *Session) Observer() *Observer { return s.observer }

// Operations is the registry that all members share.
func (s *Session) Operations() *Operations { return s.operations }

// Mail is what the session was made with; nil without mailboxes.
func (s *Session) Mail() Mail { return s.mail }

// Hooks is the session's bus. The first call makes it and gives it to all members; later members get it when they join.
func (s *Session) Hooks() *HookBus {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hooks == nil {
		s.hooks = newHookBus(s.observer, s.User, s.log)
		for b := range s.members() {
			b.attach(func(a *attachment) { a.hooks = s.hooks })
		}
	}
	return s.hooks
}

// EmitHook emits a point on the session's bus if that has been made, and does nothing if not. See HookBus.Emit; the error wraps
// hook.ErrUnknown without a bus too.
func (s *Session) EmitHook(ctx context.Context, args HookArgs) error {
	if _, err := hook.Find(args.Point); err != nil {
		return err
	}
	s.mu.RLock()
	hooks := s.hooks
	s.mu.RUnlock()
	if hooks == nil {
		return nil
	}
	return hooks.Emit(ctx, args)
}

// Memory is what the session gives to branches without a store of their own.
func (s *Session) Memory() Memory {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.store()
}

// store makes the session's memory where there is none. mu is held.
func (s *Session) store() Memory {
	if s.memory == nil {
		s.memory = &InMemory{}
	}
	return s.memory
}

// Name is what the session is called.
func (s *Session) Name() string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.name
}

// User is the person for whom the session works; budgets, hooks and audit mean this one (or who an input names), never Branch.User.
func (s *Session) User() string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.user
}

// Metadata returns a copy.
func (s *Session) Metadata() map[string]any {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return maps.Clone(s.metadata)
}

// SetMetadata keeps a value that has a JSON form; nil takes the key away.
func (s *Session) SetMetadata(key string, value any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if value == nil {
		delete(s.metadata, key)
		return
	}
	if s.metadata == nil {
		s.metadata = map[string]any{}
	}
	s.metadata[key] = value
}
