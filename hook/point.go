package hook

import (
	"errors"
	"fmt"
)

// Point names a place at which handlers are called. Only the names of the table are points.
type Point string

// The points.
const (
	SessionStart    Point = "session.start"
	SessionEnd      Point = "session.end"
	BranchCreate    Point = "branch.create"
	BranchEnd       Point = "branch.end"
	PromptSubmit    Point = "prompt.submit"
	APIPreCall      Point = "api.pre_call"
	APIPostCall     Point = "api.post_call"
	APIStreamChunk  Point = "api.stream_chunk"
	ToolPre         Point = "tool.pre"
	ToolPost        Point = "tool.post"
	ToolError       Point = "tool.error"
	MessageAdd      Point = "message.add"
	ArtifactCreated Point = "artifact.created"
)

// Row is what is said of one point.
type Row struct {
	Point Point
	// Blocks: the first error of a handler prevents what the point announces. Errors at other points are logged, and nothing else.
	Blocks bool
	// Recorded: an emission leaves a signal on the session's observer. What is not has a signal of its own already.
	Recorded bool
	// When says at which moment the point is emitted.
	When string
	// Library says that package session emits the point by itself; the others are emitted by the program that uses it.
	Library bool
}

var table = [...]Row{
	{SessionStart, false, true, "a session begins its work", false},
	{SessionEnd, false, true, "a session has ended its work", false},
	{BranchCreate, false, true, "a branch was made and has joined its session", false},
	{BranchEnd, false, true, "a branch has left its session for good", false},
	{PromptSubmit, true, true, "an instruction is about to join its branch", true},
	{APIPreCall, false, true, "a model is about to be asked", true},
	{APIPostCall, false, true, "a model has answered or failed", true},
	{APIStreamChunk, false, true, "a piece of a model's answer has come", true},
	{ToolPre, true, true, "a tool is about to run", true},
	{ToolPost, false, true, "a tool has run", true},
	{ToolError, false, true, "a tool has failed, or was kept from running by tool.pre", true},
	{MessageAdd, false, false, "a message has joined its branch", true},
	{ArtifactCreated, false, true, "a file was written for the person", false},
}

// ErrUnknown reports a name that is no point.
var ErrUnknown = errors.New("unknown hook point")

// ErrStop is what a handler returns to end the chain of handlers: those after it are not called. It is no objection, and what
// the point announces goes on.
var ErrStop = errors.New("stop the chain of hooks")

// Table returns a copy of the catalogue, in its fixed order.
func Table() []Row {
	rows := table
	return rows[:]
}

// Find returns the row of a point. The error wraps ErrUnknown.
func Find(p Point) (Row, error) {
	for _, r := range &table {
		if r.Point == p {
			return r, nil
		}
	}
	return Row{}, fmt.Errorf("%w: %q", ErrUnknown, string(p))
}

// Parse returns the point with this name. The error wraps ErrUnknown.
func Parse(name string) (Point, error) {
	r, err := Find(Point(name))
	return r.Point, err
}
