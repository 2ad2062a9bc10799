package session

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"soma/ident"
)

// Gate judges an event by its payload before anything else is done with it. An error or a panic is a no.
type Gate func(ctx context.Context, payload any) (bool, error)

// Observer keeps what happens in a session and tells those who want to know. Emit does, in this order: ask the gate, store,
// route into named streams, call handlers.
//
// The history holds the last events (Options.History of the session, DefaultHistory by default), 48 bytes each besides the
// events themselves; Dropped counts what has left it. An event that leaves the history leaves its streams, which hold 8
// bytes an event. History and streams end with the program.
//
// All methods may be called from any goroutine, and from within gates, routes and handlers. NewObserver makes one; the zero value
// is of no use.
type Observer struct {
	id  ident.ID
	log *slog.Logger
	now func() time.Time

	gate   atomic.Pointer[Gate]
	routes atomic.Pointer[[]route]
	subs   atomic.Pointer[[]*subscription]

	mu      sync.Mutex // guards what follows, and writers of what is above
	history ring
}

type route struct {
	when func(payload any) bool
	into string
}

// ObserverOptions are the settings of an observer without a session.
type ObserverOptions struct {
	// History is the number of events kept: 0 means DefaultHistory.
	History int
	// Log gets what SafeEmit swallows; nil means [slog.Default].
	Log *slog.Logger
	// Now is the clock; nil means [time.Now].
	Now func() time.Time
}

// NewObserver makes an observer of its own. That of a session is made by New.
func NewObserver(o ObserverOptions) *Observer {
	if o.History <= 0 {
		o.History = DefaultHistory
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	w := &Observer{id: ident.New(o.Now()), log: o.Log, now: o.Now, history: newRing(o.History)}
	w.routes.Store(&[]route{})
	w.subs.Store(&[]*subscription{})
	return w
}

// SetGate puts the gate in the place of the one before; nil is the same as ClearGate.
func (o *Observer) SetGate(g Gate) {
	if g == nil {
		o.gate.Store(nil)
		return
	}
	o.gate.Store(&g)
}

// ClearGate takes the gate away: everything passes.
func (o *Observer) ClearGate() { o.gate.Store(nil) }

// Route appends each event to the named stream whose payload the predicate says yes to. Routes are asked in the order in which
// they were added, and stay. One that panics ends the emission with an error. The error wraps ErrInvalid.
func (o *Observer) Route(when func(payload any) bool, into string) error {
	if when == nil || into == "" {
		return fmt.Errorf("cannot route: %w route: it needs a predicate and a stream", ErrInvalid)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	routes := append(*o.routes.Load(), route{when, into}) // as in observe
	o.routes.Store(&routes)
	return nil
}

// emission is one event on its way.
type emission struct {
	signal  Signal // nil where a value was wrapped and nobody has asked for the envelope
	payload any
	role    string
	at      int64
}

// wrap returns the signal.
func (e *emission) wrap() Signal {
	if e.signal == nil {
		e.signal = wrapped(e.payload, e.at)
	}
	return e.signal
}

func wrapped(payload any, at int64) Signal {
	return Wrapped{Envelope{Time: time.Unix(0, at), Data: payload}}
}

func (o *Observer) begin(event any) (e emission) {
	s, ok := event.(Signal)
	if !ok {
		return emission{payload: event, at: o.now().UnixNano()}
	}
	defer func() {
		if recover() != nil { // a nil pointer to a signal
			e = emission{payload: event, at: o.now().UnixNano()}
		}
	}()
	meta := s.Meta()
	e = emission{signal: s, payload: meta.Data, role: meta.Role}
	if meta.Data == nil {
		e.payload = event
	}
	if meta.Time.IsZero() {
		meta.Time = o.now()
	}
	e.at = meta.Time.UnixNano()
	return e
}

func (o *Observer) store(e *emission, denied bool) uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.history.add(record{e.signal, e.payload, e.at, denied})
}

// Emit tells of an event. Handlers registered with Observe run one after another in the caller's goroutine, then those registered
// with ObserveAsync at once, and Emit waits for them.
//
// The results are those of the handlers that matched, first the former, then the latter, each in the order of registration. The
// first error or panic of a route or of a handler of Observe ends the emission and is returned with the results so far; errors of
// asynchronous handlers are joined. An event that the gate refuses is stored, and neither results nor an error come back.
func (o *Observer) Emit(ctx context.Context, event any) ([]any, error) {
	var results []any
	err := o.emit(ctx, event, &results)
	return results, err
}

// SafeEmit is Emit for those who must not fail by it: results are dropped, errors are logged.
func (o *Observer) SafeEmit(ctx context.Context, event any) {
	if err := o.emit(ctx, event, nil); err != nil {
		o.log.WarnContext(ctx, "an event was not told to all", "error", err)
	}
}

func (o *Observer) emit(ctx context.Context, event any, results *[]any) error {
	e := o.begin(event)
	if gate := o.gate.Load(); gate != nil {
		if yes, _ := ask(ctx, *gate, e.payload); !yes {
			o.store(&e, true)
			return nil
		}
	}
	seq := o.store(&e, false)
	if routes := *o.routes.Load(); len(routes) > 0 {
		if err := o.route(routes, seq, e.payload); err != nil {
			return fmt.Errorf("cannot route event %d: %w", seq, err)
		}
	}
	return o.dispatch(ctx, *o.subs.Load(), &e, results)
}

func ask(ctx context.Context, gate Gate, payload any) (yes bool, err error) {
	defer func() {
		if v := recover(); v != nil {
			yes, err = false, caught("the gate", v)
		}
	}()
	yes, err = gate(ctx, payload)
	return yes && err == nil, err
}

func (o *Observer) route(routes []route, seq uint64, payload any) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = caught("a route", v)
		}
	}()
	for _, r := range routes {
		if r.when(payload) {
			o.mu.Lock()
			o.history.stream(r.into, seq)
			o.mu.Unlock()
		}
	}
	return nil
}

// Authorize asks the gate about an action that nobody has taken yet. Without a gate the answer is yes. A no, an error or a panic
// stores GateDenied, routes and dispatches nothing, and is false. On a nil observer, that of a free branch, it is true.
func (o *Observer) Authorize(ctx context.Context, action any) bool {
	if o == nil {
		return true
	}
	gate := o.gate.Load()
	if gate == nil {
		return true
	}
	if yes, _ := ask(ctx, *gate, action); yes {
		return true
	}
	e := o.begin(GateDenied{Envelope{Data: action}})
	o.store(&e, true)
	return false
}
