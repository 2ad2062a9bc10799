package session

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"soma/ident"
)

// Add puts a message at the end of the branch, in memory only, and returns it as it is kept. A message whose id the branch
// has is replaced in its place; a system message takes the place of the one before, or becomes the first. Nobody is told.
//
// The error wraps ErrNeedsContext once the branch has persistence callbacks, ErrInvalid for a message that cannot be kept
// (also where a replacement would make a system message of another one, or the reverse); nothing has changed then.
func (b *Branch) Add(m Message) (Message, error) {
	stored, _, err := b.put(false, m)
	if err != nil {
		return Message{}, fmt.Errorf("cannot add a message: %w", err)
	}
	return stored[0], nil
}

// AddContext is Add, after which it calls every persistence callback in the order in which they were installed, and emits
// MessageAdded. Errors of callbacks come back joined, with the message: it stays in the branch.
func (b *Branch) AddContext(ctx context.Context, m Message) (Message, error) {
	stored, err := b.add(ctx, m)
	if stored == nil {
		return Message{}, err
	}
	return stored[0], err
}

// add adds messages that stay together. stored is nil where nothing has changed.
func (b *Branch) add(ctx context.Context, ms ...Message) (stored []Message, err error) {
	stored, callbacks, err := b.put(true, ms...)
	if err != nil {
		return nil, fmt.Errorf("cannot add a message: %w", err)
	}
	var errs []error
	for _, m := range stored {
		for _, c := range callbacks {
			if err := c.call(ctx, b, m); err != nil {
				errs = append(errs, fmt.Errorf("cannot keep message %s: %w", m.ID, err))
			}
		}
		b.signal(ctx, MessageAdded{Envelope: Envelope{Role: string(m.Role), Op: OpOf(ctx), Data: m}, Branch: b.id})
	}
	return stored, errors.Join(errs...)
}

func (c *callback) call(ctx context.Context, b *Branch, m Message) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = caught("a persistence callback", v)
		}
	}()
	return c.do(ctx, b, m)
}

func (b *Branch) put(persisted bool, ms ...Message) ([]Message, []*callback, error) {
	known := make([]bool, len(ms))
	ms = slices.Clone(ms)
	for i := range ms {
		m := &ms[i]
		if err := m.check(); err != nil {
			return nil, nil, err
		}
		if known[i] = !m.ID.IsZero(); !known[i] {
			m.ID = ident.New(b.now())
		}
		if m.Time.IsZero() {
			m.Time = b.now()
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !persisted && len(b.callbacks) > 0 {
		return nil, nil, ErrNeedsContext
	}
	for i := range ms {
		m := ms[i]
		if err := b.messages.put(b.id, &m, known[i]); err != nil {
			return nil, nil, err
		}
	}
	return ms, b.callbacks, nil
}

// OnMessage installs a persistence callback: AddContext calls it for each message that joins, in the goroutine that adds it, and
// Add is refused from then on. remove takes it out again; it may be called more than once.
func (b *Branch) OnMessage(do Persist) (remove func()) {
	c := &callback{do: do}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.callbacks = append(slices.Clip(b.callbacks), c)
	return func() { b.drop(func(other *callback) bool { return other == c }) }
}

func (b *Branch) drop(which func(*callback) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.callbacks = slices.DeleteFunc(slices.Clone(b.callbacks), which)
}

// signal tells the session's observer, if there is one.
func (b *Branch) signal(ctx context.Context, s Signal) {
	if o := b.Observer(); o != nil {
		o.SafeEmit(ctx, s)
	}
}

// hook emits a point on the session's bus, if that has been made.
func (b *Branch) hook(ctx context.Context, args HookArgs) error {
	bus := b.Hooks()
	if bus == nil {
		return nil
	}
	args.Branch = b
	return bus.emit(ctx, args)
}
