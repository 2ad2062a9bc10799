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

// The sequenced frames in use. The five from FrameJobList on are asks: the reply has the type and the id of its ask.
const (
	FrameExecute   FrameType = "execute"
	FrameReply     FrameType = "reply"
	FrameInterrupt FrameType = "interrupt"
	FrameShutdown  FrameType = "shutdown"

	FrameJobList  FrameType = "job_list"
	FrameJobRead  FrameType = "job_read"
	FrameJobStop  FrameType = "job_stop"
	FrameCellRead FrameType = "cell_read"
	FrameComplete FrameType = "complete"

	FrameReady        FrameType = "ready"
	FrameStartupError FrameType = "startup_error"
	FrameCall         FrameType = "call"
	FrameDone         FrameType = "done"
	FrameBackgrounded FrameType = "backgrounded"
	FrameCells        FrameType = "cells"
	FrameJobStart     FrameType = "job_start"
	FrameJob          FrameType = "job"
	FrameJobs         FrameType = "jobs"
	FrameSeen         FrameType = "seen"
	FrameTrace        FrameType = "trace"
	FrameCleanup      FrameType = "cleanup"
)

// Origins of a cell. They decide what its done frame carries, and nothing else.
const (
	OriginModel  = "model"
	OriginPerson = "person"
)

// Execute asks for a cell to be run.
type Execute struct {
	Type FrameType `json:"type"`
	Cell string    `json:"cell"`
	Code string    `json:"code"`
	// TimeoutMS is the deadline, at most one hour.
	TimeoutMS int64 `json:"timeout_ms"`
	// Origin is OriginModel or OriginPerson; empty means OriginPerson.
	Origin string `json:"origin,omitempty"`
	// BackgroundMS is how long the cell may run before it is reported as backgrounded; 0: it never is.
	BackgroundMS int64 `json:"background_ms,omitempty"`
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
