package session

import (
	"slices"
	"strconv"
	"time"

	"soma/ident"
)

// event makes what is shown of a stored record. mu is held.
func (o *Observer) event(seq uint64) Event {
	r := *o.history.at(seq)
	e := Event{Seq: seq, At: time.Unix(0, r.at), Signal: r.signal, Payload: r.payload, Denied: r.denied}
	if e.Signal == nil {
		e.Signal = wrapped(r.payload, r.at)
	} else {
		e.ID = e.Signal.Meta().ID
	}
	if e.ID.IsZero() {
		e.ID = ident.Derive(o.id, strconv.FormatUint(seq, 10))
	}
	return e
}

// History returns a copy of the events that are kept, oldest first, refused ones too.
func (o *Observer) History() []Event {
	o.mu.Lock()
	defer o.mu.Unlock()
	events := make([]Event, 0, o.history.next-o.history.first())
	for seq := o.history.first(); seq < o.history.next; seq++ {
		events = append(events, o.event(seq))
	}
	return events
}

// Stream returns the events of a named stream that are kept, in the order in which they were stored; none where no route has
// ever filled it.
func (o *Observer) Stream(name string) []Event {
	o.mu.Lock()
	defer o.mu.Unlock()
	seqs, first := slices.Sorted(slices.Values(o.history.streams[name])), o.history.first()
	var events []Event
	for _, seq := range seqs {
		if seq >= first {
			events = append(events, o.event(seq))
		}
	}
	return events
}

// Len is the number of events that are kept.
func (o *Observer) Len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return int(o.history.next - o.history.first())
}

// Dropped is the number of events that have left the history.
func (o *Observer) Dropped() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.history.first() - 1
}

// ByType returns the payloads that are a T, and the signals that are one where their payload is not, of all events that are
// kept: oldest first, refused ones too.
func ByType[T any](o *Observer) []T {
	var found []T
	for _, e := range o.History() {
		if v, ok := e.Payload.(T); ok {
			found = append(found, v)
		} else if v, ok := e.Signal.(T); ok {
			found = append(found, v)
		}
	}
	return found
}
