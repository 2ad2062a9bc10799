package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"soma/hook"
	"soma/ident"
)

// Hook is a handler of points. Its address is its identity.
type Hook struct {
	do func(ctx context.Context, args HookArgs) error
}

// NewHook makes a handler. do is called from each goroutine that emits; hook.ErrStop ends the chain (what the point
// announces goes on), and what another error does depends on the point (package hook).
func NewHook(do func(ctx context.Context, args HookArgs) error) *Hook { return &Hook{do: do} }

// HookArgs is what handlers of a point get. Which fields are filled depends on the point.
type HookArgs struct {
	Point hook.Point
	// Branch is where it happens; nil at session.start, session.end and where an emitter does not say.
	Branch *Branch
	// User is the person for whom it is done: who the input names, else the session's.
	User string
	// Message: prompt.submit (not in the branch yet), message.add.
	Message *Message
	// Tool and Arguments (JSON): all points of tools. Result: tool.post. Err: tool.error and a failed api.post_call.
	Tool      string
	Arguments json.RawMessage
	Result    any
	Err       error
	// Model: all points of models. Text: the piece of api.stream_chunk, the whole of api.post_call.
	Model string
	Text  string
	// Path: artifact.created.
	Path string
	// More is for programs that emit by hand; it should have a JSON form.
	More map[string]any
}

// MarshalJSON writes what is filled; the branch and the message as their ids.
func (a HookArgs) MarshalJSON() ([]byte, error) {
	out := struct {
		Branch    ident.ID        `json:"branch,omitzero"`
		User      string          `json:"user,omitempty"`
		Message   ident.ID        `json:"message,omitzero"`
		Tool      string          `json:"tool,omitempty"`
		Arguments json.RawMessage `json:"arguments,omitempty"`
		Result    any             `json:"result,omitempty"`
		Error     string          `json:"error,omitempty"`
		Model     string          `json:"model,omitempty"`
		Text      string          `json:"text,omitempty"`
		Path      string          `json:"path,omitempty"`
		More      map[string]any  `json:"more,omitempty"`
	}{User: a.User, Tool: a.Tool, Result: a.Result, Model: a.Model, Text: a.Text, Path: a.Path, More: a.More}
	if a.Branch != nil {
		out.Branch = a.Branch.id
	}
	if a.Message != nil {
		out.Message = a.Message.ID
	}
	if json.Valid(a.Arguments) {
		out.Arguments = a.Arguments
	}
	if a.Err != nil {
		out.Error = a.Err.Error()
	}
	return json.Marshal(out)
}

// HookBus calls handlers at the points of package hook. It begins without any. Making it or joining it emits nothing.
//
// At a point that blocks handlers run in order, and the first error or panic ends the emission and is returned. At all
// others errors and panics are logged and the next handler runs. After the handlers exactly one HookSignal goes to the
// observer (none at message.add), and what becomes of that is no matter for the emitter.
//
// Handlers of a point run one after another in the goroutine that emits, over the list as it was when the emission began:
// first the defaults (or what Replace put in their place), then those of On, each in the order of registration. All methods
// may be called from any goroutine and from handlers.
type HookBus struct {
	observer *Observer
	user     func() string
	log      *slog.Logger
	router   *Hook

	mu      sync.RWMutex
	points  map[hook.Point]*chain
	writers map[*Branch]Persist
}

// chain are the handlers of one point.
type chain struct {
	defaults []*Hook
	replaced bool // defaults are what Replace said
	on       []*Hook
}

func newHookBus(o *Observer, user func() string, log *slog.Logger) *HookBus {
	h := &HookBus{observer: o, user: user, log: log, points: map[hook.Point]*chain{}, writers: map[*Branch]Persist{}}
	h.router = NewHook(h.write)
	return h
}

// change edits the chain of a point.
func (h *HookBus) change(p hook.Point, edit func(*chain) error) error {
	if _, err := hook.Find(p); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.points[p]
	if c == nil {
		c = &chain{}
		h.points[p] = c
	}
	return edit(c)
}

// On adds a handler to a point. The error wraps hook.ErrUnknown, or ErrInvalid for a nil handler.
func (h *HookBus) On(p hook.Point, handler *Hook) error {
	return h.change(p, func(c *chain) error {
		if err := usable(handler); err != nil {
			return err
		}
		c.on = append(c.on, handler)
		return nil
	})
}

// Off takes a handler out of a point, however it got there, and returns how often it stood there. The error wraps hook.ErrUnknown.
func (h *HookBus) Off(p hook.Point, handler *Hook) (n int, err error) {
	err = h.change(p, func(c *chain) error {
		without := func(list []*Hook) []*Hook {
			before := len(list)
			list = slices.DeleteFunc(list, func(other *Hook) bool { return other == handler })
			n += before - len(list)
			return list
		}
		c.defaults, c.on = without(c.defaults), without(c.on)
		return nil
	})
	return n, err
}

// SetDefaults gives a point the handlers that stand before those of On, unless Replace has spoken for the point. The error
// wraps hook.ErrUnknown or ErrInvalid.
func (h *HookBus) SetDefaults(p hook.Point, handlers ...*Hook) error {
	return h.change(p, func(c *chain) error {
		if err := usable(handlers...); err != nil {
			return err
		}
		if !c.replaced {
			c.defaults = slices.Clone(handlers)
		}
		return nil
	})
}

// Replace puts these handlers in the place of a point's defaults for good; none switches the defaults off. What PersistMessages
// has installed is no default: it stays, before these. The error wraps hook.ErrUnknown or ErrInvalid.
func (h *HookBus) Replace(p hook.Point, handlers ...*Hook) error {
	return h.change(p, func(c *chain) error {
		if err := usable(handlers...); err != nil {
			return err
		}
		list := slices.Clone(handlers)
		if slices.Contains(c.defaults, h.router) {
			list = slices.Concat([]*Hook{h.router}, handlers)
		}
		c.defaults, c.replaced = list, true
		return nil
	})
}

func usable(handlers ...*Hook) error {
	for _, handler := range handlers {
		if handler == nil || handler.do == nil {
			return fmt.Errorf("%w hook: it is nil", ErrInvalid)
		}
	}
	return nil
}

// HandlersFor returns the handlers of a point in the order in which they run. The error wraps hook.ErrUnknown.
func (h *HookBus) HandlersFor(p hook.Point) ([]*Hook, error) {
	if _, err := hook.Find(p); err != nil {
		return nil, err
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	c := h.points[p]
	if c == nil {
		return nil, nil
	}
	return slices.Concat(c.defaults, c.on), nil
}

// Emit calls the handlers of args.Point. Any point may be emitted. The error wraps hook.ErrUnknown; at a point that blocks
// it is that of the handler which objects.
func (h *HookBus) Emit(ctx context.Context, args HookArgs) error {
	err := h.emit(ctx, args)
	if row, unknown := hook.Find(args.Point); unknown == nil && !row.Blocks {
		return nil
	}
	return err
}

// emit also returns what the writer of a message says.
func (h *HookBus) emit(ctx context.Context, args HookArgs) error {
	row, err := hook.Find(args.Point)
	if err != nil {
		return err
	}
	if args.User == "" {
		if args.User = UserOf(ctx); args.User == "" {
			args.User = h.user()
		}
	}
	handlers, _ := h.HandlersFor(args.Point)
	var objection, unwritten error
	for _, handler := range handlers {
		err := handler.call(ctx, args)
		if errors.Is(err, hook.ErrStop) {
			break
		}
		if err == nil {
			continue
		}
		if row.Blocks {
			objection = fmt.Errorf("%s: %w", args.Point, err)
			break
		}
		if handler == h.router {
			unwritten = err
		}
		h.log.WarnContext(ctx, "a hook failed", "point", string(args.Point), "error", err)
	}
	if row.Recorded {
		s := HookSignal{Envelope: Envelope{Op: OpOf(ctx)}, Point: args.Point, Args: args}
		if objection != nil {
			s.Denied = objection.Error()
		}
		h.observer.SafeEmit(ctx, s)
	}
	return errors.Join(objection, unwritten)
}

func (k *Hook) call(ctx context.Context, args HookArgs) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = caught("a hook", v)
		}
	}()
	return k.do(ctx, args)
}
