package session

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"soma/ident"
	"soma/message"
)

// Operation is a function that a program runs on a branch by name. args is whatever its callers agree on.
type Operation func(ctx context.Context, b *Branch, args any) (any, error)

// Operations is a registry of operations. All members of a session share one, so that what is registered later is there for
// all at once. The zero value is empty.
type Operations struct {
	mu     sync.RWMutex
	byName map[string]Operation
}

// The operations that every branch has. They cannot be registered.
const (
	// OpAct runs a tool: args is a message.Call, the result the Message of the response.
	OpAct = "act"
	// OpInstruct asks the model: args is an Input or a string, the result the Message of the answer.
	OpInstruct = "instruct"
)

func builtin(name string) Operation {
	switch name {
	case OpAct:
		return func(ctx context.Context, b *Branch, args any) (any, error) {
			call, ok := args.(message.Call)
			if !ok {
				return nil, fmt.Errorf("%w arguments: a %T, not a call", ErrInvalid, args)
			}
			return b.Act(ctx, call)
		}
	case OpInstruct:
		return func(ctx context.Context, b *Branch, args any) (any, error) {
			switch in := args.(type) {
			case Input:
				return b.Instruct(ctx, in)
			case string:
				return b.Instruct(ctx, Input{Text: in})
			}
			return nil, fmt.Errorf("%w arguments: a %T, not an input", ErrInvalid, args)
		}
	}
	return nil
}

// Register adds an operation. The error wraps ErrExists for a name that is taken or that of an operation which every branch has,
// ErrInvalid for an empty name or a nil function.
func (o *Operations) Register(name string, op Operation) error { return o.set(name, op, false) }

// Update is Register for a name that may be taken: the new function takes its place for all who share the registry.
func (o *Operations) Update(name string, op Operation) error { return o.set(name, op, true) }

func (o *Operations) set(name string, op Operation, update bool) error {
	if name == "" || op == nil {
		return fmt.Errorf("cannot register operation %q: %w: it needs a name and a function", name, ErrInvalid)
	}
	if builtin(name) != nil {
		return fmt.Errorf("cannot register operation %q: it %w on every branch", name, ErrExists)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.byName[name] != nil && !update {
		return fmt.Errorf("cannot register operation %q: it %w", name, ErrExists)
	}
	if o.byName == nil {
		o.byName = map[string]Operation{}
	}
	o.byName[name] = op
	return nil
}

// Names returns the registered names, sorted.
func (o *Operations) Names() []string {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return slices.Sorted(maps.Keys(o.byName))
}

// Find returns a registered operation.
func (o *Operations) Find(name string) (Operation, bool) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	op, ok := o.byName[name]
	return op, ok
}

// RunOperation runs an operation on this branch as a run of the same name (see Run): one that every branch has, else one of
// the registry. The error wraps ErrUnknownOperation where there is none, and ErrPanic where it panics.
func (b *Branch) RunOperation(ctx context.Context, name string, args any) (any, error) {
	op := builtin(name)
	if op == nil {
		var ok bool
		if op, ok = b.Operations().Find(name); !ok {
			return nil, fmt.Errorf("cannot run %q: %w", name, ErrUnknownOperation)
		}
	}
	return b.Run(ctx, name, func(ctx context.Context) (any, error) { return op(ctx, b, args) })
}

// RunOperation runs an operation on a member, or on the default branch where the id is zero. The error wraps ErrNotFound for an id
// of no member, ErrNoBranch without a default, and what Branch.RunOperation returns.
func (s *Session) RunOperation(ctx context.Context, name string, branch ident.ID, args any) (any, error) {
	b := s.Default()
	if !branch.IsZero() {
		var err error
		if b, err = s.Branch(branch); err != nil {
			return nil, fmt.Errorf("cannot run %q: %w", name, err)
		}
	}
	if b == nil {
		return nil, fmt.Errorf("cannot run %q: %w", name, ErrNoBranch)
	}
	return b.RunOperation(ctx, name, args)
}
