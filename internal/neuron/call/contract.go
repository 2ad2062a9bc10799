package call

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"soma/internal/neuron"
)

// DefaultDeadline is how long a caller waits for an answer where its contract says nothing.
const DefaultDeadline = 45 * time.Second

// Contract is a method that a neuron offers: its permanent names, and the types of request and answer. It is a value, a
// package variable of the room that owns the method.
type Contract[Req, Resp any] struct{ about }

// Stream is a method that answers with many items, part by part.
type Stream[Req, Item any] struct{ about }

// about is what both have.
type about struct {
	name, method string
	entry        bool
	deadline     time.Duration
	rails        []Rail
	mistakes     []error
}

// New returns the contract of a method. Both names are permanent: rows and facts hold them. The method has no dot.
func New[Req, Resp any](name, method string, options ...Option) Contract[Req, Resp] {
	return Contract[Req, Resp]{describe(name, method, options)}
}

// NewStream returns the contract of a method that answers with many items.
func NewStream[Req, Item any](name, method string, options ...Option) Stream[Req, Item] {
	return Stream[Req, Item]{describe(name, method, options)}
}

// Option changes a contract.
type Option func(*about)

// Entry makes the method one that callers from outside may use, who are no neurons.
func Entry() Option { return func(a *about) { a.entry = true } }

// Deadline bounds the wait for an answer, of a stream for each part. The attempt of the calling handler bounds it too.
func Deadline(d time.Duration) Option { return func(a *about) { a.deadline = d } }

// Over lists rails: the callers of another owner that the method serves.
func Over(rails ...Rail) Option { return func(a *about) { a.rails = append(a.rails, rails...) } }

// Rail is one exception from the rule that a method serves neurons of its own owner only (N-43): exactly this method, from
// exactly this class of neurons to that one. Every field is needed, none is a pattern.
type Rail struct {
	Contract, Method string
	From, To         End
}

// End is one end of a rail: the neurons of one kind that one owner has.
type End struct{ Owner, Kind string }

func endOf(id neuron.ID) End { return End{id.Owner, id.Kind} }

func describe(name, method string, options []Option) about {
	a := about{name: name, method: method, deadline: DefaultDeadline}
	for _, o := range options {
		o(&a)
	}
	mistake := func(format string, args ...any) {
		a.mistakes = append(a.mistakes, fmt.Errorf("contract %s.%s: "+format, append([]any{name, method}, args...)...))
	}
	if name == "" || method == "" || strings.Contains(method, ".") {
		mistake("it needs a name and a method without a dot")
	}
	if a.deadline <= 0 {
		mistake("deadline %s", a.deadline)
	}
	for _, r := range a.rails {
		if r.Contract != name || r.Method != method {
			mistake("a rail is for %s.%s", r.Contract, r.Method)
		}
		for _, e := range []End{r.From, r.To} {
			if e.Owner == "" || e.Kind == "" || strings.Contains(e.Owner+e.Kind, "*") {
				mistake("a rail ends at %q, %q, which is no exact class", e.Owner, e.Kind)
			}
		}
	}
	return a
}

// Alias is the permanent name of the deliveries that carry requests of the contract. Whoever wires an engine lists it among
// its types.
func (a about) Alias() string { return prefix + a.name + "." + a.method }

const prefix = "call."

// names splits an alias.
func names(alias string) (contract, method string) {
	rest := strings.TrimPrefix(alias, prefix)
	i := strings.LastIndex(rest, ".")
	if i < 0 {
		return rest, ""
	}
	return rest[:i], rest[i+1:]
}

// crosses reports whether a caller of another owner may be served.
func (a *about) crosses(caller, target neuron.ID) bool {
	for _, r := range a.rails {
		if r.From == endOf(caller) && r.To == endOf(target) {
			return true
		}
	}
	return false
}

// Codes of refused and failed calls.
const (
	Unattributed  neuron.Code = "unattributed"   // no neuron asks, and the contract is no entry
	NoRequest     neuron.Code = "no_request"     // no committed request of the caller stands behind the delivery, or no longer
	CrossOwner    neuron.Code = "cross_owner"    // the caller belongs to another owner and no rail leads here
	WouldDeadlock neuron.Code = "would_deadlock" // the target waits for the caller
	TooLate       neuron.Code = "deadline"       // nobody waits any more
	Unknown       neuron.Code = "unknown"        // the end was lost: whether the method ran is not known
	TooLarge      neuron.Code = "too_large"      // request or answer
	TooMany       neuron.Code = "too_many"       // calls of one turn, parts of one stream
)

// What a call comes to, for errors.Is.
var (
	// ErrRejected: the target refused for good. The error is a *neuron.Refusal with the target's code: a handler that returns
	// it settles its own delivery, since asking again would be answered the same.
	ErrRejected = errors.New("call rejected")
	// ErrFailed: the method returned an error, or its answer did not come. The error is a *FailedError; a handler that
	// returns it is run again and asks again.
	ErrFailed = errors.New("call failed")
)

// FailedError says why a call failed. Code is neuron.CallFailed for an error of the method, TooLate when the deadline passed.
type FailedError struct{ Code neuron.Code }

func (e *FailedError) Error() string { return "call failed: " + string(e.Code) }

// Is reports whether target is ErrFailed.
func (e *FailedError) Is(target error) bool { return target == ErrFailed }

// Bounds.
const (
	maxCalls   = 1000 // of one attempt
	maxParts   = 1024 // of one stream
	maxPayload = 16   // of a request or an answer, in Limits.PayloadBytes; a part of a stream has one
)
