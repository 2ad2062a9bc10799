package flow

import (
	"context"
	"errors"
	"fmt"

	"soma/ident"
	"soma/session"
)

// What callers tell apart; errors of the package wrap one of these or of those of package session where it applies.
var (
	// ErrCycle: the edges lead from a node back to itself.
	ErrCycle = errors.New("the graph has a cycle")
	// ErrCondition: a condition cannot be asked.
	ErrCondition = errors.New("bad condition")
	// ErrEnded: the flow has ended or is being cancelled.
	ErrEnded = errors.New("the flow has ended")
	// ErrVerdict: the result of a gate is neither a Verdict nor a bool, so that the gate has failed.
	ErrVerdict = errors.New("no verdict")
)

// Func is what a node does. It is called from any goroutine. An error is data for the dependents. An [Escalation], as result or as
// error, asks for another attempt.
type Func func(ctx context.Context, in In) (any, error)

// Policy says what a node's failure means to those who depend on it.
type Policy uint8

const (
	// PassFailure lets edges from a failed node pass as those from a completed one: its error is data.
	PassFailure Policy = iota
	// SkipDependents lets no edge from the failed node pass.
	SkipDependents
)

// Node is one operation of a flow.
type Node struct {
	// ID names the node in its graph and in a journal.
	ID string
	// Do is what is done, or Operation the name of an operation of the session (one that every branch has, or a registered one),
	// which gets Args. It runs as a run of the node's branch; [Of] tells an operation for which node it runs.
	Do        Func
	Operation string
	Args      any
	// Branch is a member on which the node runs; zero leaves the choice to the flow.
	Branch ident.ID
	// Inherit gives the node's clone the messages that its primary predecessor's branch, that of its first edge, has when the node
	// starts. It has no meaning for a root, and is refused together with Branch.
	Inherit bool
	// Gate: the result is a [Verdict] or a bool, and a no vetoes every node that depends on this one.
	Gate      bool
	OnFailure Policy
	// Retries is how many further attempts the node gets when it escalates.
	Retries int
}

func (n *Node) check() error {
	switch {
	case n.ID == "":
		return fmt.Errorf("%w node: it has no id", session.ErrInvalid)
	case (n.Do == nil) == (n.Operation == ""):
		return fmt.Errorf("%w node %q: it needs either a function or an operation", session.ErrInvalid, n.ID)
	case n.Inherit && !n.Branch.IsZero():
		return fmt.Errorf("%w node %q: what it inherits would replace the messages of branch %s", session.ErrInvalid, n.ID, n.Branch)
	case n.Retries < 0 || n.OnFailure > SkipDependents:
		return fmt.Errorf("%w node %q: retries %d, policy %d", session.ErrInvalid, n.ID, n.Retries, n.OnFailure)
	}
	return nil
}

// Outcome is how a node has ended.
type Outcome struct {
	Node   string
	State  State
	Result any
	// Err is why it failed or was cancelled.
	Err error
}

// In is what a node sees.
type In struct {
	Flow   ident.ID
	Node   string
	Branch *session.Branch
	Args   any
	// Attempt counts from 1.
	Attempt int
	// Before are the ends of the node's predecessors, each once, in the order of its edges.
	Before []Outcome

	shared map[string]any // never changed in place
}

// Context returns a copy of the flow's context as it was when the node started.
func (in In) Context() map[string]any { return copied(in.shared) }

// Result returns how a predecessor has ended.
func (in In) Result(node string) (Outcome, bool) {
	for _, o := range in.Before {
		if o.Node == node {
			return o, true
		}
	}
	return Outcome{}, false
}

// Verdict is the answer of a gate. A bool is one too: true accepts.
type Verdict struct {
	Reject bool
	Reason string
}

// verdict reads the answer of a gate.
func verdict(result any) (Verdict, error) {
	switch v := result.(type) {
	case Verdict:
		return v, nil
	case *Verdict:
		if v != nil {
			return *v, nil
		}
	case bool:
		return Verdict{Reject: !v}, nil
	}
	return Verdict{}, fmt.Errorf("%w: a gate answers with a Verdict or a bool, not a %T", ErrVerdict, result)
}

// Escalation asks for another attempt of the node that returns it, as its error or as its result. A node that has no attempts left
// fails with it.
type Escalation struct {
	Reason string
	// Args are those of the next attempt; nil leaves them as they are.
	Args any
}

// Error makes an escalation an error.
func (e *Escalation) Error() string { return "escalated: " + e.Reason }

// escalation finds out whether a node asks for another attempt.
func escalation(result any, err error) *Escalation {
	var e *Escalation
	if errors.As(err, &e) {
		return e
	}
	if err != nil {
		return nil
	}
	switch v := result.(type) {
	case *Escalation:
		return v
	case Escalation:
		return &v
	}
	return nil
}
