package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"
)

// PanicError is a caught panic. Its text is one line without the stack, which is for the log.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// StopError says what had not stopped at the deadline, by name; a name comes once per goroutine.
type StopError struct {
	Names []string
	After time.Duration
}

func (e *StopError) Error() string {
	return fmt.Sprintf("cannot stop within %s: %s", e.After.Round(time.Millisecond), strings.Join(e.Names, ", "))
}

// guard runs fn and then, whatever happened, ended with its error: a panic, and a goroutine that ends itself by
// runtime.Goexit, would otherwise leave an owner waiting for ever.
func guard(ctx context.Context, fn func(context.Context) error, ended func(error)) {
	var err error = &PanicError{Value: "goroutine ended by runtime.Goexit"}
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{Value: value, Stack: debug.Stack()}
		}
		ended(err)
	}()
	err = fn(ctx)
}

// stopping reports whether err only says that its goroutine was asked to stop.
func stopping(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx)))
}
