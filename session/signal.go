package session

import (
	"context"
	"reflect"
	"time"

	"soma/hook"
	"soma/ident"
)

// Signal is an event that brings its own envelope: a struct that embeds Envelope is one. Any other value is wrapped when it is
// emitted.
type Signal interface {
	// Meta returns the envelope.
	Meta() Envelope
}

// Envelope is what is known of every event. The zero value of each field means "not given".
type Envelope struct {
	// ID names the event; without one it is derived from the observer and the event's number.
	ID ident.ID `json:"-"`
	// Time is when it happened; without one it is when it was emitted.
	Time time.Time `json:"-"`
	// Role says in whose part it was emitted; a key InRole looks at it.
	Role string `json:"-"`
	// Op names the run or the flow's node that it belongs to.
	Op string `json:"-"`
	// Data is the payload: what filters and the gate see. Without one they see the signal itself.
	Data any `json:"-"`
}

// Meta makes a struct that embeds the envelope a Signal.
func (e Envelope) Meta() Envelope { return e }

// Wrapped is the signal that a value becomes which is none.
type Wrapped struct{ Envelope }

// MessageAdded says that a message has joined its branch; Data is the Message.
type MessageAdded struct {
	Envelope
	Branch ident.ID `json:"branch,omitzero"`
}

// GateDenied says that Authorize said no; Data is the action. It is stored and dispatched to nobody.
type GateDenied struct{ Envelope }

// HookSignal says that the handlers of a point were called.
type HookSignal struct {
	Envelope
	Point hook.Point `json:"point"`
	Args  HookArgs   `json:"args"`
	// Denied is the objection that ended the emission of a point that blocks.
	Denied string `json:"denied,omitempty"`
}

// RunStart says that a branch has begun a run: an instruction that it works through, or an operation.
type RunStart struct {
	Envelope
	Run    ident.ID `json:"run"`
	Branch ident.ID `json:"branch"`
	Name   string   `json:"name"`
	User   string   `json:"user,omitempty"`
}

// RunEnd says that a run has ended well.
type RunEnd struct {
	Envelope
	Run    ident.ID      `json:"run"`
	Branch ident.ID      `json:"branch"`
	Name   string        `json:"name"`
	Took   time.Duration `json:"took_ns"`
}

// RunFailed says that a run has ended with an error, a panic or the end of its context.
type RunFailed struct {
	Envelope
	Run    ident.ID      `json:"run"`
	Branch ident.ID      `json:"branch"`
	Name   string        `json:"name"`
	Took   time.Duration `json:"took_ns"`
	Error  string        `json:"error"`
}

// Action is what a branch asks the gate about before a tool runs.
type Action struct {
	Branch    ident.ID `json:"branch"`
	Tool      string   `json:"tool"`
	Arguments []byte   `json:"-"`
	User      string   `json:"user,omitempty"`
}

// Event is one entry of an observer's history.
type Event struct {
	// Seq numbers the events of one observer from 1 without a gap.
	Seq uint64
	ID  ident.ID
	At  time.Time
	// Signal is what was emitted, wrapped where that was no signal; Payload is what filters and the gate saw.
	Signal  Signal
	Payload any
	// Denied: the gate refused it, so nothing was routed or dispatched.
	Denied bool
}

// Kind is the name of the signal's type, or of the payload's where that was wrapped.
func (e Event) Kind() string { return KindOf(e.Signal) }

// KindOf is the name of a signal's type without its package; a wrapped value counts as what it is.
func KindOf(s Signal) string {
	var v any = s
	if w, ok := s.(Wrapped); ok {
		v = w.Data
	}
	t := reflect.TypeOf(v)
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == nil:
		return "nil"
	case t.Name() == "":
		return t.String()
	}
	return t.Name()
}

type personKey struct{}

// WithUser names the person for whom what runs under the context is done, in place of the session's own.
func WithUser(ctx context.Context, user string) context.Context {
	return context.WithValue(ctx, personKey{}, user)
}

// UserOf returns the person that WithUser named, empty without one.
func UserOf(ctx context.Context) string {
	user, _ := ctx.Value(personKey{}).(string)
	return user
}
