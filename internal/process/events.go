package process

import (
	"time"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/process/shorten"
	"soma/wire"
)

// emit stages one event of a session.
func emit(t *neuron.Turn, session string, pid ident.PID, kind string, body any) {
	t.Write(newEvent(session, pid, kind, body, t.Now()))
}

func newEvent(session string, pid ident.PID, kind string, body any, at time.Time) *Event {
	b := shorten.Event(body)
	return &Event{Event: wire.Event{Session: session, PID: uint64(pid), Kind: kind, At: at, Body: b}}
}
