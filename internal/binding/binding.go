package binding

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"time"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/pykernel/bundle"
)

// Binding is one capability of the cells.
type Binding struct {
	// Name is the room's: what errors and logs call it.
	Name string
	// Module is the Python module that the kernel imports at its start and whose setup(api) it calls.
	Module string
	Source []byte
	// Beside holds modules that Module imports; the kernel does not set them up.
	Beside []bundle.Module
	// Rules is what a model reads of this binding, each rule once in the whole prompt.
	Rules  string
	Routes []Route
}

// Route answers one host call.
type Route struct {
	// Method is namespace.name; a namespace belongs to one binding.
	Method string
	// Policy says what happens to a call that a dead daemon had begun (P-020): an Idempotent one runs again.
	Policy neuron.Policy
	// Wait bounds the call; 0 is a minute.
	Wait time.Duration
	// Call returns what encodes to JSON. Its error is a *Refusal where the caller can act on it. It may run on many goroutines.
	Call func(ctx context.Context, c Caller, args json.RawMessage) (any, error)
}

// Caller says whose cell makes a host call. A route serves nothing beyond the caller's own branch unless that is its purpose.
type Caller struct {
	Kernel  string
	Session string
	Branch  ident.ID
	Owner   neuron.ID
	Cell    string // empty for a call that outlives its cell
	ID      string // of the call, unique for ever: the delivery id of a route that sends
}

// Refusal is an answer that a program can act on.
type Refusal struct {
	Code string // lower-case words joined by "_"
	Text string // one line, says what to do
}

// Error is the text.
func (r *Refusal) Error() string { return r.Text }

// Handle returns a route whose arguments decode into A: an object without unknown fields, else the call is refused as
// "invalid" (no arguments are null).
func Handle[A any](method string, policy neuron.Policy, call func(context.Context, Caller, A) (any, error)) Route {
	return Route{Method: method, Policy: policy, Call: func(ctx context.Context, c Caller, raw json.RawMessage) (any, error) {
		var args A
		d := json.NewDecoder(bytes.NewReader(raw))
		d.DisallowUnknownFields()
		if err := d.Decode(&args); err != nil {
			return nil, &Refusal{Code: codeInvalid, Text: "invalid arguments of " + method + ": " + strings.TrimPrefix(err.Error(), "json: ")}
		}
		if _, err := d.Token(); err != io.EOF {
			return nil, &Refusal{Code: codeInvalid, Text: "invalid arguments of " + method + ": more than one value"}
		}
		return call(ctx, c, args)
	}}
}
