package turn

import (
	"errors"
	"fmt"
	"strings"
)

// Status is the state of an agent process.
type Status string

// The states (K-01). Ready waits for a slot, Running holds one while its inference streams, Blocked waits for something
// outside and holds none.
const (
	Created    Status = "created"
	Ready      Status = "ready"
	Running    Status = "running"
	Blocked    Status = "blocked"
	Terminated Status = "terminated"
)

// Reason says what a Blocked process waits for (K-02).
type Reason string

// The reasons. OnBudget and OnProvider carry a detail (which layer; the provider's words), OnProvider a wake time as well.
const (
	OnInput    Reason = "waiting for input"
	OnTool     Reason = "tool result"
	OnIPC      Reason = "ipc"
	OnApproval Reason = "approval"
	OnBudget   Reason = "budget"
	OnProvider Reason = "provider delay"
	// OnBackground: its inputs are worked through, and it waits for cells or jobs that run on.
	OnBackground Reason = "background work"
	OnPause      Reason = "paused"
	Interrupted  Reason = "interrupted"
	OnHook       Reason = "denied by hook"
	OnChild      Reason = "waiting for a child"
	OnMCP        Reason = "mcp authorization"
	OnCrashLoop  Reason = "crash loop"
)

// ErrIllegalMove is wrapped by every MoveError.
var ErrIllegalMove = errors.New("illegal move")

// MoveError reports a move that the table does not hold.
type MoveError struct{ From, To Status }

func (e *MoveError) Error() string {
	return fmt.Sprintf("cannot move a process from %s to %s", e.From, e.To)
}

func (e *MoveError) Unwrap() error { return ErrIllegalMove }

var moves = []struct {
	from, to Status
	when     string
}{
	{Created, Ready, "first input"},
	{Ready, Running, "slot granted"},
	{Running, Ready, "slot given back"},
	{Ready, Blocked, "waits"},
	{Running, Blocked, "waits"},
	{Blocked, Ready, "may go on"},
	{Created, Terminated, "ended"},
	{Ready, Terminated, "ended"},
	{Running, Terminated, "ended"},
	{Blocked, Terminated, "ended"},
}

// Move reports whether a process may go from one state to the other: nil, or a *MoveError. A Blocked process that comes to
// wait for something else passes through Ready. Safe for concurrent use.
func Move(from, to Status) error {
	for _, m := range moves {
		if m.from == from && m.to == to {
			return nil
		}
	}
	return &MoveError{From: from, To: to}
}

// Diagram returns the table of moves as a mermaid state diagram, one line per move, for the documents.
func Diagram() string {
	var b strings.Builder
	b.WriteString("stateDiagram-v2\n    [*] --> created\n")
	for _, m := range moves {
		fmt.Fprintf(&b, "    %s --> %s: %s\n", m.from, m.to, m.when)
	}
	b.WriteString("    terminated --> [*]\n")
	return b.String()
}

// Cause is the typed reason of a process's end (K-03).
type Cause string

// The causes. Finished goes with code 0 and only with it.
const (
	Finished Cause = "finished"
	Killed   Cause = "killed"
	Failure  Cause = "failed"
	Closed   Cause = "session closed"
)

// Exit says how a process ended: 0 finished, anything else killed or failed.
type Exit struct {
	Code  int    `json:"code"`
	Cause Cause  `json:"cause"`
	Words string `json:"words,omitempty"`
}
