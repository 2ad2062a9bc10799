package neuron

import (
	"time"

	"soma/ident"
)

// Request marks a delivery that carries out a call: its target answers into the call's row, for which the handler of the
// caller waits. Such a delivery has no payload; what was asked lies in the row. It is tried once: a failed attempt settles it
// with code CallFailed, and whoever asked may ask again. One that disposes of a stream is tried like any other.
type Request struct {
	// ID names the call. The delivery has an ID of its own, a new one each time the call is asked.
	ID ident.ID `json:"id"`
	// Chain are the neurons whose handlers wait for this one, outermost first; the last is the caller.
	Chain []ID `json:"chain,omitempty"`
	// Until is when nobody waits any more.
	Until time.Time `json:"until"`
	// Dispose says that the caller has left the stream: nobody waits.
	Dispose bool `json:"dispose,omitempty"`
}

// CallFailed is the code of a request whose handler returned an ordinary error or panicked: nothing of its turn is kept.
const CallFailed Code = "failed"
