package session

import (
	"context"
	"fmt"
	"slices"

	"soma/hook"
)

// PersistMessages makes write the one writer of the branch's messages: the branch gets a persistence callback that emits
// message.add, and the point's defaults give way to a handler that finds the writer by the branch. What a writer returns is
// an error of AddContext; errors of other handlers of the point are logged as at any other. A system message that the
// branch already has is written before PersistMessages returns; the error is that of writing it.
//
// A branch has one writer: another call, on whatever bus, replaces it. Remove ends it. The error wraps ErrInvalid for a nil
// branch or writer.
func (h *HookBus) PersistMessages(ctx context.Context, b *Branch, write Persist) error {
	if b == nil || write == nil {
		return fmt.Errorf("cannot persist messages: %w: a branch and a writer are needed", ErrInvalid)
	}
	h.mu.Lock()
	h.writers[b] = write
	c := h.points[hook.MessageAdd]
	if c == nil {
		c = &chain{}
		h.points[hook.MessageAdd] = c
	}
	c.defaults, c.replaced = []*Hook{h.router}, true
	h.mu.Unlock()

	system, ok, before := b.route(&callback{of: h, do: func(ctx context.Context, b *Branch, m Message) error {
		return h.emit(ctx, HookArgs{Point: hook.MessageAdd, Branch: b, Message: &m})
	}})
	if before != nil && before != h {
		before.unwrite(b)
	}
	if !ok {
		return nil
	}
	return h.emit(ctx, HookArgs{Point: hook.MessageAdd, Branch: b, Message: &system})
}

// write is the handler that finds the writer.
func (h *HookBus) write(ctx context.Context, args HookArgs) error {
	if args.Branch == nil || args.Message == nil {
		return nil
	}
	h.mu.RLock()
	write := h.writers[args.Branch]
	h.mu.RUnlock()
	if write == nil {
		return nil
	}
	return write(ctx, args.Branch, *args.Message)
}

func (h *HookBus) unwrite(b *Branch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.writers, b)
}

// unroute ends the branch's writer, on whatever bus.
func (b *Branch) unroute() {
	b.mu.Lock()
	var buses []*HookBus
	b.callbacks = slices.DeleteFunc(slices.Clone(b.callbacks), func(c *callback) bool {
		if c.of == nil {
			return false
		}
		buses = append(buses, c.of)
		return true
	})
	b.mu.Unlock()
	for _, bus := range buses {
		bus.unwrite(b)
	}
}

// route installs the callback of a bus in the place of another bus's. It returns the system message that is there already,
// and the bus before.
func (b *Branch) route(c *callback) (system Message, ok bool, before *HookBus) {
	b.mu.Lock()
	defer b.mu.Unlock()
	callbacks := slices.DeleteFunc(slices.Clone(b.callbacks), func(other *callback) bool {
		if other.of == nil {
			return false
		}
		before = other.of
		return true
	})
	b.callbacks = append(callbacks, c)
	if b.messages.system {
		return *b.messages.all()[0], true, before
	}
	return Message{}, false, before
}
