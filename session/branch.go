package session

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"soma/ident"
)

// Branch is one conversation. It owns its messages in order (at most one system message, always the first), an optional visible
// subset of that order, its tools, model, log, metadata, and the first memory store that it got. What it has from its session it
// has while it is a member: owner, User, operations, observer, hooks.
//
// Messages are kept for the life of the branch, without a bound; the log keeps the last LogSize entries. All methods may be called
// from any goroutine. Those that take a context run tools, callbacks and handlers of the program; none of them holds a lock then.
type Branch struct {
	id      ident.ID
	created time.Time
	now     func() time.Time

	// member is held while the branch joins or leaves a session. Several are locked in the order of their ids, before a session's.
	member sync.Mutex
	// at changes as a whole, so that nobody sees a branch half in a session.
	at     atomic.Pointer[attachment]
	memory atomic.Pointer[Memory]

	mu        sync.RWMutex // guards what follows
	name      string
	metadata  map[string]any
	messages  messages
	tools     map[string]Tool // never changed in place
	models    []Model         // never changed in place; the last is asked
	callbacks []*callback     // never changed in place
	log       log
}

// attachment is what a branch has from its session.
type attachment struct {
	owner      *Session // nil: free
	user       string
	operations *Operations
	observer   *Observer
	hooks      *HookBus
}

// Persist is told of a message that has joined a branch.
type Persist func(ctx context.Context, b *Branch, m Message) error

type callback struct {
	do Persist
	of *HookBus // nil for one of OnMessage
}

// BranchOptions say how a branch is made. The zero value makes an empty one.
type BranchOptions struct {
	// ID is for a branch that is made again from what was saved; zero makes a fresh one.
	ID      ident.ID
	Created time.Time
	Name    string
	// User marks what a free branch is attached to; inclusion in a session replaces it.
	User string
	// System is the text of the system message, none if empty; SystemSender its sender.
	System, SystemSender string
	// Dated adds a line with a date to the system text: Date, or where that is zero the moment in which the branch is made.
	Dated bool
	Date  time.Time
	// Messages are the first ones, in order. A system message among them replaces the one that System makes.
	Messages []Message
	Tools    []Tool
	// Models are known by their names; the last is asked.
	Models   []Model
	Metadata map[string]any
	// Memory is the branch's own store. Without one it gets that of the first session which it joins, or makes its own when it
	// is asked for it before.
	Memory Memory
	// AsDefault makes the branch the default of the session whose NewBranch gets the options.
	AsDefault bool
	// Now is the clock; nil means [time.Now].
	Now func() time.Time
}

// NewBranch makes a free branch. The error wraps ErrInvalid and tells which message or tool is not usable.
func NewBranch(o BranchOptions) (*Branch, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.ID.IsZero() {
		o.ID = ident.New(o.Now())
	}
	if o.Created.IsZero() {
		o.Created = o.Now()
	}
	b := &Branch{id: o.ID, created: o.Created, now: o.Now, name: o.Name, metadata: maps.Clone(o.Metadata)}
	b.at.Store(&attachment{user: o.User, operations: &Operations{}})
	if o.Memory != nil {
		b.claim(o.Memory)
	}
	for _, m := range o.Models {
		b.SetModel(m)
	}
	if o.System != "" {
		text := o.System
		if o.Dated {
			if o.Date.IsZero() {
				o.Date = o.Now()
			}
			text += "\n\nDate: " + o.Date.Format(time.RFC3339)
		}
		o.Messages = append([]Message{{Role: System, Text: text, Sender: o.SystemSender, Recipient: o.ID.String()}}, o.Messages...)
	}
	for i, m := range o.Messages {
		if _, err := b.Add(m); err != nil {
			return nil, fmt.Errorf("cannot make a branch: message %d: %w", i, err)
		}
	}
	for _, t := range o.Tools {
		if err := b.SetTool(t); err != nil {
			return nil, fmt.Errorf("cannot make a branch: %w", err)
		}
	}
	return b, nil
}

// ID names the branch for good.
func (b *Branch) ID() ident.ID { return b.id }

// Created is when the branch was made first.
func (b *Branch) Created() time.Time { return b.created }

// Owner is the id of the session that the branch is a member of; false for a free branch.
func (b *Branch) Owner() (ident.ID, bool) {
	owner := b.at.Load().owner
	if owner == nil {
		return ident.ID{}, false
	}
	return owner.id, true
}

// User is the id of the session as text while the branch is a member, unless SetUser said otherwise. It marks the
// attachment; the person is Session.User, or who an input names (WithUser).
func (b *Branch) User() string { return b.at.Load().user }

// SetUser sets User until the branch joins a session next. Leaving one clears it only if it still is that session's id.
func (b *Branch) SetUser(user string) { b.attach(func(a *attachment) { a.user = user }) }

// Observer is the session's; nil for a free branch.
func (b *Branch) Observer() *Observer { return b.at.Load().observer }

// Hooks is the session's bus once that has been made; nil before, and for a free branch.
func (b *Branch) Hooks() *HookBus { return b.at.Load().hooks }

// Operations is the session's registry; that of a free branch is its own.
func (b *Branch) Operations() *Operations { return b.at.Load().operations }

// attach changes what the branch has from its session, as a whole.
func (b *Branch) attach(change func(*attachment)) {
	for {
		old := b.at.Load()
		next := *old
		change(&next)
		if b.at.CompareAndSwap(old, &next) {
			return
		}
	}
}

// Memory is the first store that the branch got, and stays it: its own one, the one of the first session that it joined, or one
// in memory that this call makes.
func (b *Branch) Memory() Memory {
	if m := b.memory.Load(); m != nil {
		return *m
	}
	return b.claim(&InMemory{})
}

// claim gives the branch a store if it has none, and returns the one that it has.
func (b *Branch) claim(m Memory) Memory {
	b.memory.CompareAndSwap(nil, &m)
	return *b.memory.Load()
}

// Name is what Session.Get also finds the branch by; it need not be unique.
func (b *Branch) Name() string {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.name
}

// SetName renames the branch.
func (b *Branch) SetName(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.name = name
}

// Metadata returns a copy.
func (b *Branch) Metadata() map[string]any {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return maps.Clone(b.metadata)
}

// SetMetadata keeps a value that has a JSON form; nil takes the key away.
func (b *Branch) SetMetadata(key string, value any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if value == nil {
		delete(b.metadata, key)
		return
	}
	if b.metadata == nil {
		b.metadata = map[string]any{}
	}
	b.metadata[key] = value
}

// Models returns the branch's models; the last is the one that is asked where an input names none.
func (b *Branch) Models() []Model {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return slices.Clone(b.models)
}

// SetModel makes m the model that is asked, in the place of one of the same name. A nil model is ignored.
func (b *Branch) SetModel(m Model) {
	if m == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.models = append(slices.DeleteFunc(slices.Clone(b.models), func(other Model) bool { return other.Name() == m.Name() }), m)
}

// model finds a model by its name; the one that is asked where that is empty.
func (b *Branch) model(name string) (Model, bool) {
	for _, m := range slices.Backward(b.Models()) {
		if name == "" || m.Name() == name {
			return m, true
		}
	}
	return nil, false
}
