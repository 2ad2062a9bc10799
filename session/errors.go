package session

import (
	"errors"
	"fmt"
)

// What callers tell apart; errors of the package wrap one of these where it applies.
var (
	// ErrOwned: a branch is a member of another session, or its id is taken in this one.
	ErrOwned = errors.New("branch belongs elsewhere")
	// ErrNotFound: no member has this id or name, no message or stored item this id.
	ErrNotFound = errors.New("not found")
	// ErrNoBranch: no branch was named and the session has no default.
	ErrNoBranch = errors.New("no branch")
	// ErrNeedsContext: the branch has persistence callbacks, so messages are added with AddContext.
	ErrNeedsContext = errors.New("adding a message needs a context here")
	// ErrInvalid: a message, tool, option or argument is not usable as it is.
	ErrInvalid = errors.New("invalid")
	// ErrExists: the name is taken.
	ErrExists = errors.New("already exists")
	// ErrUnknownOperation: neither the branch nor the registry has this operation.
	ErrUnknownOperation = errors.New("unknown operation")
	// ErrNoKeys: an observation says nothing of what is to be observed.
	ErrNoKeys = errors.New("nothing to observe is named")
	// ErrNoMail: the session was made without mailboxes.
	ErrNoMail = errors.New("the session has no mailboxes")
	// ErrFull: a mailbox holds as much as it may.
	ErrFull = errors.New("mailbox is full")
	// ErrNoModel: the branch has no model, or none of the name that an input asks for.
	ErrNoModel = errors.New("the branch has no model")
	// ErrPanic: a function of the program panicked.
	ErrPanic = errors.New("panicked")
)

// caught turns a recovered value into an error.
func caught(what string, v any) error {
	if err, ok := v.(error); ok {
		return fmt.Errorf("%s %w: %w", what, ErrPanic, err)
	}
	return fmt.Errorf("%s %w: %v", what, ErrPanic, v)
}
