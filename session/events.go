package session

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"soma/ident"
)

// event makes what is shown of a stored record. mu is not held: an envelope may be the work of the program, and what is derived
// takes its time.
func (o *Observer) event(seq uint64, r record) Event {
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
	first := o.history.first()
	records := make([]record, o.history.next-first)
	for i := range records {
		records[i] = *o.history.at(first + uint64(i))
	}
	o.mu.Unlock()
	events := make([]Event, len(records))
	for i, r := range records {
		events[i] = o.event(first+uint64(i), r)
	}
	return events
}

// Stream returns the events of a named stream that are kept, in the order in which they were stored; none where no route has
// ever filled it.
func (o *Observer) Stream(name string) []Event {
	type numbered struct {
		seq uint64
		record
	}
	o.mu.Lock()
	var found []numbered
	for _, seq := range o.history.streams[name] {
		if seq >= o.history.first() {
			found = append(found, numbered{seq, *o.history.at(seq)})
		}
	}
	o.mu.Unlock()
	slices.SortFunc(found, func(x, y numbered) int { return cmp.Compare(x.seq, y.seq) })
	var events []Event
	for _, n := range found {
		events = append(events, o.event(n.seq, n.record))
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
