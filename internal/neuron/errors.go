package neuron

import (
	"errors"
	"fmt"
)

// Errors that callers act on.
var (
	// ErrFenced: this daemon no longer owns the place; nothing was committed.
	ErrFenced = errors.New("fenced: another owner holds the place")
	// ErrNotOwner: another node holds the place of the target, or none does; nothing was run or written. The error is a
	// *NotOwnerError.
	ErrNotOwner = errors.New("the place is not held here")
	// ErrOutcomeUnknown: the commit may or may not have happened; memory must be rebuilt from rows.
	ErrOutcomeUnknown = errors.New("commit outcome unknown")
	// ErrStoreFailed: the store met an I/O error, a full disk or a damaged file, and refuses every later commit. The daemon
	// ends with the error's text; a restart is the way back. It also wraps ErrOutcomeUnknown where the commit itself failed.
	ErrStoreFailed = errors.New("store failed")
	// ErrStoreAway: the server of the store does not answer at this moment. Reads say so; commits and claims wait instead.
	ErrStoreAway = errors.New("the database does not answer")
	// ErrDuplicate: the delivery id is already settled; nothing was run or written.
	ErrDuplicate = errors.New("duplicate delivery")
	// ErrNoDeadLetter: there is no dead letter of that id, or another one has just re-driven or discarded it.
	ErrNoDeadLetter = errors.New("no such dead letter")
	// ErrStopped: the engine is stopping and takes nothing more.
	ErrStopped = errors.New("engine stopped")
	// ErrBusy: too many deliveries wait for this neuron.
	ErrBusy = errors.New("mailbox full")
	// ErrPayloadTooLarge: a message above Limits.PayloadBytes was sent.
	ErrPayloadTooLarge = errors.New("payload too large")
)

// NotOwnerError says which place is not held; it is an ErrNotOwner.
type NotOwnerError struct{ Place Place }

func (e *NotOwnerError) Error() string { return fmt.Sprintf("place %d is not held here", e.Place) }

// Is reports whether target is ErrNotOwner.
func (e *NotOwnerError) Is(target error) bool { return target == ErrNotOwner }

// Code is the stable reason class of a settled refusal.
type Code string

// Codes of the runtime itself; domain code adds its own.
const (
	NoHandler       Code = "no_handler"
	Undecodable     Code = "undecodable"
	TooDeep         Code = "too_deep"
	Refused         Code = "refused"
	AttemptsSpent   Code = "attempts_spent"
	HorizonPassed   Code = "horizon_passed"
	CrashedTooOften Code = "crashed_too_often"
)

// Refusal is a settled failure (N-09): the delivery is recorded as settled with its code, nothing else of the turn is
// kept, and it is not retried.
type Refusal struct {
	Code Code
	Err  error
}

func (r *Refusal) Error() string {
	if r.Err == nil {
		return string(r.Code)
	}
	return fmt.Sprintf("%s: %v", r.Code, r.Err)
}

// Unwrap returns the cause.
func (r *Refusal) Unwrap() error { return r.Err }

// Settle marks err as settled with code Refused, or keeps the code that it has.
func Settle(err error) error { return SettleAs(Refused, err) }

// SettleAs marks err as settled with code; an error that is already settled keeps its code.
func SettleAs(code Code, err error) error {
	var r *Refusal
	if errors.As(err, &r) {
		return r
	}
	return &Refusal{Code: code, Err: err}
}
