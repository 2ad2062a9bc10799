package pykernel

import (
	"encoding/json"

	"soma/ident"
)

// Protocol is the version that attach and hello carry.
const Protocol = 1

// Mark is the variable in the environment of a python kernel, and so of what its cells start, that holds the kernel's id.
const Mark = "SOMA_KERNEL"

// Sizes of the protocol, in bytes.
const (
	MaxFrame    = 64 << 20
	MaxHead     = 1 << 20  // first bytes of a cell's output in its done frame
	MaxTail     = 64 << 10 // last bytes, where there was more
	MaxCodeSize = 1 << 20  // source of one cell
)

// FrameType names a sequenced frame; protocol/pykernel/frames.json lists them all.
type FrameType string

// The sequenced frames in use.
const (
	FrameExecute      FrameType = "execute"
	FrameReply        FrameType = "reply"
	FrameInterrupt    FrameType = "interrupt"
	FrameShutdown     FrameType = "shutdown"
	FrameReady        FrameType = "ready"
	FrameStartupError FrameType = "startup_error"
	FrameCall         FrameType = "call"
	FrameDone         FrameType = "done"
	FrameCells        FrameType = "cells"
)

// Execute asks for a cell to be run.
type Execute struct {
	Type FrameType `json:"type"`
	Cell string    `json:"cell"`
	Code string    `json:"code"`
	// TimeoutMS is the deadline, at most one hour.
	TimeoutMS int64 `json:"timeout_ms"`
	Cause
}

// Cause says which delivery's turn started a cell, and which causal tree that belongs to. The outcome carries both on; to the
// python kernel they mean nothing. The zero Cause means "none".
type Cause struct {
	Correlation ident.ID `json:"correlation,omitzero"`
	Causation   ident.ID `json:"causation,omitzero"`
}

// Interrupt asks for a cell to be stopped.
type Interrupt struct {
	Type FrameType `json:"type"`
	Cell string    `json:"cell"`
}

// Reply answers a host call.
type Reply struct {
	Type  FrameType       `json:"type"`
	Call  string          `json:"call"`
	OK    bool            `json:"ok"`
	Value json.RawMessage `json:"value,omitempty"`
	Error *CallError      `json:"error,omitempty"`
}

// CallError is a refused or failed host call.
type CallError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// CellStatus says how a cell ended.
type CellStatus string

// The ends of a cell. The python kernel reports the first four; the daemon makes the others.
const (
	CellOK          CellStatus = "ok"
	CellError       CellStatus = "error"
	CellInterrupted CellStatus = "interrupted"
	CellTimedOut    CellStatus = "timed_out"
	CellUnknown     CellStatus = "unknown"     // the python kernel ended while the cell may have run
	CellNotStarted  CellStatus = "not_started" // the frame was never written to the python kernel
)

// Done is the end of a cell as the python kernel reports it.
type Done struct {
	Type       FrameType  `json:"type"`
	Cell       string     `json:"cell"`
	Status     CellStatus `json:"status"`
	DurationMS int64      `json:"duration_ms"`
	Value      *string    `json:"value,omitempty"`
	Error      *CellFault `json:"error,omitempty"`
	Output     Output     `json:"output"`
}

// CellFault is the exception that ended a cell, its traceback cut to the person's code.
type CellFault struct {
	Type      string `json:"type"`
	Message   string `json:"message"`
	Traceback string `json:"traceback"`
}

// Output is what a cell wrote: the first MaxHead bytes, the last MaxTail where there was more, and the true size.
type Output struct {
	Head string `json:"head"`
	Tail string `json:"tail,omitempty"`
	Size int64  `json:"size"`
}

// CellEnded is the message that brings a cell's outcome to the neuron named by the kernel's owner column. Its delivery id
// is ident.Derive(cell id, "done").
type CellEnded struct {
	Kernel     string     `json:"kernel"`
	Cell       string     `json:"cell"`
	Status     CellStatus `json:"status"`
	DurationMS int64      `json:"duration_ms"`
	Value      *string    `json:"value,omitempty"`
	Error      *CellFault `json:"error,omitempty"`
	// Output is cut to PreviewBytes; Content holds all that was kept (head, then tail), zero when nothing was written.
	Output  Output   `json:"output"`
	Content ident.ID `json:"content,omitzero"`
	// Kept is how many bytes of Content are the head; what follows them is the tail.
	Kept int64 `json:"kept,omitempty"`
	// Note is for the reader of the result, such as why the outcome is unknown.
	Note string `json:"note,omitempty"`
}

// PreviewBytes bounds Head plus Tail of a CellEnded.
const PreviewBytes = 32 << 10

// Gone is the message that tells a python kernel's owner that it has ended: its names are gone. Unfinished cells come as
// CellEnded before it. Its delivery id is ident.Derive(kernel id, "gone").
type Gone struct {
	Kernel string `json:"kernel"`
	Reason string `json:"reason"`
}

// Aliases of the two messages.
const (
	CellEndedAlias = "pykernel.cell_ended.v1"
	GoneAlias      = "pykernel.gone.v1"
)
