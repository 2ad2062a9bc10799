package daemon

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"soma/internal/neuron"
	"soma/internal/process"
	"soma/wire"
)

// waitingItems bounds what waits for one listener; past it he loses items and is told.
const waitingItems = 1024

// events hands committed and live events to whoever listens, and waits for nobody.
type events struct {
	mu    sync.Mutex
	subs  map[string][]*subscription // by session; "" listens to all committed events
	drops atomic.Uint64              // times that a listener began to lose items
}

type subscription struct {
	events  *events
	session string
	ready   chan struct{} // capacity 1

	mu      sync.Mutex
	items   []wire.Item
	dropped bool
	wide    bool // it hears other daemons, too
	ended   bool
}

func newEvents() *events { return &events{subs: map[string][]*subscription{}} }

func (e *events) publish(ev wire.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.subs[ev.Session] {
		s.offer(wire.Item{Event: &ev})
	}
	for _, s := range e.subs[""] {
		s.offer(wire.Item{Event: &ev})
	}
}

func (e *events) live(session, kind string, body any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.subs[session]) == 0 {
		return
	}
	b, err := json.Marshal(body)
	if err != nil { // bodies are structs of wire
		panic(err)
	}
	for _, s := range e.subs[session] {
		s.offer(wire.Item{Live: &wire.Live{Kind: kind, Body: b}})
	}
}

// widen lets a subscription to all sessions hear what other daemons tell.
func (e *events) widen(s *subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wide = true
}

// hint tells of a session of another daemon.
func (e *events) hint(h wire.Hint) {
	e.eachWide(func(s *subscription) { s.offer(wire.Item{Hint: &h}) })
}

// missed tells that hints of other daemons may have been lost.
func (e *events) missed() { e.eachWide((*subscription).lose) }

func (e *events) eachWide(fn func(*subscription)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.subs[""] {
		s.mu.Lock()
		wide := s.wide
		s.mu.Unlock()
		if wide {
			fn(s)
		}
	}
}

// end ends the subscriptions to sessions of places that were given up: who follows again finds their next holder.
func (e *events) end(places neuron.PlaceSet) {
	e.endThose(func(session string) bool { return places.Has(neuron.PlaceOf(session)) })
}

// gone ends those who listen to a session that is being removed: when they come again they are told so.
func (e *events) gone(session string) { e.endThose(func(s string) bool { return s == session }) }

func (e *events) endThose(which func(session string) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for session, subs := range e.subs {
		if session == "" || !which(session) {
			continue
		}
		for _, s := range subs {
			s.mu.Lock()
			s.ended = true
			s.mu.Unlock()
			s.rouse()
		}
	}
}

// followed reports whether somebody follows a session of a place.
func (e *events) followed(place neuron.Place) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for session := range e.subs {
		if session != "" && neuron.PlaceOf(session) == place {
			return true
		}
	}
	return false
}

func (e *events) subscribe(session string) *subscription {
	s := &subscription{events: e, session: session, ready: make(chan struct{}, 1)}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.subs[session] = append(e.subs[session], s)
	return s
}

func (s *subscription) offer(it wire.Item) {
	s.mu.Lock()
	if len(s.items) < waitingItems {
		s.items = append(s.items, it)
	} else if !s.dropped {
		s.dropped = true
		s.events.drops.Add(1)
	}
	s.mu.Unlock()
	s.rouse()
}

// lose tells the listener that items may be missing.
func (s *subscription) lose() {
	s.mu.Lock()
	s.dropped = true
	s.mu.Unlock()
	s.rouse()
}

func (s *subscription) rouse() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// Next returns the next item, ctx's error when that ends first, or io.EOF when the session has another daemon.
func (s *subscription) Next(ctx context.Context) (wire.Item, error) {
	for {
		it, ok, ended := s.take()
		switch {
		case ok:
			return it, nil
		case ended:
			return wire.Item{}, io.EOF
		}
		select {
		case <-s.ready:
		case <-ctx.Done():
			return wire.Item{}, context.Cause(ctx)
		}
	}
}

func (s *subscription) take() (it wire.Item, ok, ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.items) > 0 {
		it := s.items[0]
		s.items = s.items[1:]
		return it, true, false
	}
	if s.dropped {
		s.dropped = false
		return wire.Item{Dropped: true}, true, false
	}
	return wire.Item{}, false, s.ended
}

// Close ends the subscription.
func (s *subscription) Close() {
	e := s.events
	e.mu.Lock()
	defer e.mu.Unlock()
	e.subs[s.session] = slices.DeleteFunc(e.subs[s.session], func(o *subscription) bool { return o == s })
	if len(e.subs[s.session]) == 0 {
		delete(e.subs, s.session)
	}
}

// eventsOf is what the API reads events from: rows of the host, and what happens now.
type eventsOf struct {
	*events
	host       *process.Host
	generation string
	here       func(session string) bool // whether this daemon holds it
}

// Generation names the life of the database.
func (e eventsOf) Generation() string { return e.generation }

// Events reads committed events.
func (e eventsOf) Events(ctx context.Context, session string, after uint64, limit int) ([]wire.Event, uint64, uint64, error) {
	return e.host.Events(ctx, session, after, limit)
}

// Subscribe begins to listen; who joins in the middle of an answer first gets what it has shown so far.
func (e eventsOf) Subscribe(session string) interface {
	Next(ctx context.Context) (wire.Item, error)
	Close()
} {
	s := e.subscribe(session)
	if session != "" && !e.here(session) { // its place went away just now
		s.mu.Lock()
		s.ended = true
		s.mu.Unlock()
	}
	if session != "" {
		for _, text := range e.host.LiveTexts(session) {
			b, err := json.Marshal(text)
			if err != nil {
				panic(err)
			}
			s.offer(wire.Item{Live: &wire.Live{Kind: wire.Delta, Body: b}})
		}
	}
	return s
}
