package flow

import (
	"context"
	"errors"
	"fmt"

	"soma/session"
)

// Condition decides whether an edge passes. It is asked once, when all predecessors of the edge's target have ended and if the
// edge's source has completed or failed; all conditions of a node are asked, in the order of its edges. An error or a panic fails
// the node.
type Condition interface {
	// Check says, before anything starts, whether the condition can be asked at all.
	Check() error
	// Holds is called from any goroutine.
	Holds(ctx context.Context, p Passage) (bool, error)
}

// Passage is what a condition sees: how the edge's source has ended, and the flow's context.
type Passage struct {
	Outcome
	shared map[string]any
}

// Context returns a copy of the flow's context.
func (p Passage) Context() map[string]any { return copied(p.shared) }

// When makes a condition of a function. A nil function is a bad condition.
func When(holds func(ctx context.Context, p Passage) (bool, error)) Condition { return when(holds) }

type when func(ctx context.Context, p Passage) (bool, error)

func (w when) Check() error {
	if w == nil {
		return errors.New("there is no function")
	}
	return nil
}

func (w when) Holds(ctx context.Context, p Passage) (bool, error) { return w(ctx, p) }

// If is the condition that the source has ended in this state: Completed, or Failed where its failure is passed on. Any other
// state makes a bad condition, because no edge from such a node ever passes.
func If(state State) Condition { return ended(state) }

type ended State

func (e ended) Check() error {
	if s := State(e); s != Completed && s != Failed {
		return fmt.Errorf("no edge passes from a node that is %s", s)
	}
	return nil
}

func (e ended) Holds(_ context.Context, p Passage) (bool, error) { return p.State == State(e), nil }

// checked asks a condition whether it can be asked; nil is the edge that always passes.
func checked(c Condition) error {
	if c == nil {
		return nil
	}
	if err := guard("a condition", c.Check); err != nil {
		return fmt.Errorf("%w: %w", ErrCondition, err)
	}
	return nil
}

// guard turns a panic of the program's code into an error.
func guard(what string, do func() error) (err error) {
	defer func() {
		v := recover()
		if e, ok := v.(error); ok {
			err = fmt.Errorf("%s %w: %w", what, session.ErrPanic, e)
		} else if v != nil {
			err = fmt.Errorf("%s %w: %v", what, session.ErrPanic, v)
		}
	}()
	return do()
}
