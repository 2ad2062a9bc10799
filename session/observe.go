package session

import (
	"context"
	"fmt"
	"slices"
)

// Handler is a subscriber. Its address is its identity: observing twice calls it twice, Unobserve takes it out everywhere.
type Handler struct {
	do func(ctx context.Context, value any, o *Observer) (any, error)
}

// NewHandler makes a handler. do gets the emitter's context, the value that matched (see Type), and the observer, on which it may
// do everything, emitting and unobserving itself included. It is called from each goroutine that emits, at once if several do.
func NewHandler(do func(ctx context.Context, value any, o *Observer) (any, error)) *Handler {
	return &Handler{do: do}
}

// HandlerOf makes a handler of values of one type; it is to be observed with the key Type[T].
func HandlerOf[T any](do func(ctx context.Context, value T, o *Observer) (any, error)) *Handler {
	return NewHandler(func(ctx context.Context, value any, o *Observer) (any, error) {
		v, ok := value.(T)
		if !ok {
			return nil, fmt.Errorf("%w value for the handler: a %T", ErrInvalid, value)
		}
		return do(ctx, v, o)
	})
}

// Key is one condition of an observation. Make them with Type, Where and InRole.
type Key struct {
	is func(v any) bool
	// envelope: is may also match the signal where the payload does not; wrapped: it matches the signal that wraps a value.
	envelope, wrapped bool
	role              string
	roled             bool
}

// Type matches events whose payload is a T or, where it is not, whose signal is a T. The handler gets what matched; with several
// Type keys, what the first of them matched; without one, the payload.
func Type[T any]() Key {
	is := func(v any) bool { _, ok := v.(T); return ok }
	return Key{is: is, envelope: true, wrapped: is(Wrapped{})}
}

// Where matches events whose payload the predicate says yes to. One that panics is no match.
func Where(predicate func(payload any) bool) Key {
	return Key{is: func(v any) (yes bool) {
		defer func() {
			if recover() != nil {
				yes = false
			}
		}()
		return predicate(v)
	}}
}

// InRole matches events whose envelope has this role.
func InRole(role string) Key { return Key{role: role, roled: true} }

// subscription is one registration.
type subscription struct {
	handler *Handler
	keys    []Key
	async   bool
}

// match returns the value for the handler.
func (s *subscription) match(e *emission) (any, bool) {
	value, typed := e.payload, false
	for i := range s.keys {
		k := &s.keys[i]
		switch {
		case k.roled:
			if e.role != k.role {
				return nil, false
			}
		case k.is(e.payload):
			typed = typed || k.envelope
		case !k.envelope || e.signal == nil && !k.wrapped:
			return nil, false
		default:
			if signal := e.wrap(); !k.is(signal) {
				return nil, false
			} else if !typed {
				value, typed = signal, true
			}
		}
	}
	return value, true
}

// Observe calls the handler for each event that matches all keys, after the handlers registered before. The error wraps
// ErrNoKeys without a key, ErrInvalid without a handler.
func (o *Observer) Observe(h *Handler, keys ...Key) error { return o.observe(h, keys, false) }

// ObserveAsync is like Observe for a handler that may run beside others: each call is a goroutine of its own, started after the
// last handler registered with Observe has returned. Emit waits for it all the same.
func (o *Observer) ObserveAsync(h *Handler, keys ...Key) error { return o.observe(h, keys, true) }

func (o *Observer) observe(h *Handler, keys []Key, async bool) error {
	if h == nil || h.do == nil {
		return fmt.Errorf("cannot observe: %w handler: it is nil", ErrInvalid)
	}
	if len(keys) == 0 {
		return fmt.Errorf("cannot observe: %w", ErrNoKeys)
	}
	for _, k := range keys {
		if k.is == nil && !k.roled {
			return fmt.Errorf("cannot observe: %w key: it was not made by Type, Where or InRole", ErrInvalid)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	// Emissions under way see the array up to the length that it had then, so that appending to it costs no copy.
	subs := append(*o.subs.Load(), &subscription{h, slices.Clone(keys), async})
	o.subs.Store(&subs)
	return nil
}

// Unobserve takes out all registrations of the handler and returns how many there were. Emissions that are under way still call it.
func (o *Observer) Unobserve(h *Handler) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	old := *o.subs.Load()
	subs := slices.DeleteFunc(slices.Clone(old), func(s *subscription) bool { return s.handler == h })
	o.subs.Store(&subs)
	return len(old) - len(subs)
}
