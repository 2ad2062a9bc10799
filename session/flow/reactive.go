package flow

import (
	"context"

	"soma/session"
)

// DefaultSpawn is the number of requests that a flow accepts where nothing else is asked for.
const DefaultSpawn = 50

// Child is a node that joins a flow while it runs.
type Child struct {
	// Node: without an ID it gets the emitter's with a number behind.
	Node
	// After are nodes that it waits for, besides its emitter.
	After []string
	// Before are nodes that wait for it. They must not have begun.
	Before []string
	// Alone: it does not wait for its emitter, and its branch is a clone of the flow's default branch. Else that is a clone of the
	// emitter's branch, made when the child starts.
	Alone bool
}

// Reactive says what asks for nodes while a flow runs. Make it with On; the zero value is for flows that are not reactive.
type Reactive struct {
	max     int
	find    func(result any) []any
	observe func(o *session.Observer, ask func(ctx context.Context, request any)) (stop func())
	build   func(ctx context.Context, request any) (*Child, error)
	setup   func(ctx context.Context, b *session.Branch, n Node) error
}

// On makes a flow reactive to requests of one type: what a node's result is (or holds, if it is a slice of them), and the events of
// this type that are emitted on the session's observer while the flow runs. The emitter is the node whose result it is, or in whose
// context it was emitted; events of other flows' nodes are not for this one.
//
// build makes a node of a request. It is called without a lock held, also at once. What it does not accept is refused, see [Reason].
// At most DefaultSpawn requests are accepted.
func On[T any](build func(ctx context.Context, request T) (*Child, error)) Reactive {
	return Reactive{
		max: DefaultSpawn,
		find: func(result any) []any {
			switch v := result.(type) {
			case T:
				return []any{v}
			case []T:
				all := make([]any, len(v))
				for i, request := range v {
					all[i] = request
				}
				return all
			}
			return nil
		},
		observe: func(o *session.Observer, ask func(context.Context, any)) func() {
			h := session.HandlerOf(func(ctx context.Context, request T, _ *session.Observer) (any, error) {
				ask(ctx, request)
				return nil, nil
			})
			_ = o.Observe(h, session.Type[T]()) // it refuses only what has no handler or no key
			return func() { o.Unobserve(h) }
		},
		build: func(ctx context.Context, request any) (*Child, error) { return build(ctx, request.(T)) },
	}
}

// Max returns the same with another number of requests that are accepted; 0 means none.
func (r Reactive) Max(n int) Reactive {
	r.max = n
	return r
}

// Setup returns the same with a function that is called with the branch of each spawned node before that starts. An error or panic of
// it fails the node.
func (r Reactive) Setup(setup func(ctx context.Context, b *session.Branch, n Node) error) Reactive {
	r.setup = setup
	return r
}

// Reason says why a request was refused.
type Reason string

// The reasons.
const (
	MaxSpawnExceeded Reason = "max_spawn_exceeded" // as many as may be have been accepted
	Duplicate        Reason = "duplicate"          // the id is taken
	Cycle            Reason = "cycle"              // the child would have to wait for itself
	BuilderError     Reason = "builder_error"      // the builder failed, or made a node that cannot be run
	NullChild        Reason = "null_child"         // the builder made nothing
	Ended            Reason = "ended"              // the flow has ended or is being cancelled
)

// Refusal is a request that was not accepted. It is the error of [Handle].Inject.
type Refusal struct {
	// Node is the child's id, empty where there was none yet; Emitter who asked, empty where that was no node.
	Node, Emitter string
	Reason        Reason
	// Err says more; nil where there is no more to say.
	Err error
}

// Error is one line.
func (r *Refusal) Error() string {
	text := "cannot add node"
	if r.Node != "" {
		text += " " + r.Node
	}
	text += ": " + string(r.Reason)
	if r.Err != nil {
		text += ": " + r.Err.Error()
	}
	return text
}

// Unwrap returns what more is known.
func (r *Refusal) Unwrap() error { return r.Err }
