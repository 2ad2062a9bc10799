package model

import (
	"context"
	"errors"
	"fmt"
	"time"

	"soma/internal/agent/tool"
	"soma/message"
)

// Provider is one way to reach language models. Implementations are safe for concurrent use.
type Provider interface {
	// Stream begins one attempt. The error is an *Error, or ctx's. The stream lives until Close or the end of ctx.
	Stream(ctx context.Context, r Request) (Stream, error)
}

// Stream gives the events of one attempt. It is used by one goroutine.
type Stream interface {
	// Next waits for the next event. The last one is of kind Done; after it and only then comes io.EOF. Any other error is
	// an *Error, or that of ctx or of the context given to Provider.Stream; what came before it is superseded.
	Next(ctx context.Context) (Event, error)
	// Usage is what the attempt has used so far: as reported, else estimated and marked so. After a failure or a
	// cancellation it is what the ledger takes (K-32).
	Usage() message.Usage
	// Close ends the stream and frees what it holds; it may be called more than once.
	Close() error
}

// Request is one inference.
type Request struct {
	// Model is the provider's name of the model.
	Model string
	// System is the system prompt, empty for none.
	System string
	// Messages is paired history (K-09); notes in it are not sent.
	Messages []message.Message
	Tools    []tool.Definition
	// Attempt numbers the tries of this inference from 1.
	Attempt int
	// Image returns the bytes of an image of Messages by its content, at most its size; nil where there are none.
	Image func(ctx context.Context, content string) ([]byte, error)
	// Facts are named texts about the daemon that a script may quote, such as DaemonPID.
	Facts map[string]string
}

// Check reports why a request may not be sent: history that is not paired (K-09) or no attempt number.
func (r Request) Check() error {
	if err := message.CheckPaired(r.Messages); err != nil {
		return &Error{Class: BadRequest, Words: "history is not paired: " + err.Error()}
	}
	if r.Attempt < 1 {
		return &Error{Class: BadRequest, Words: "the attempt has no number"}
	}
	return nil
}

// Kind is the kind of an event.
type Kind string

// The kinds. Token and Reasoning carry Text, ToolCall carries Call, Done carries End.
const (
	Token     Kind = "token"
	Reasoning Kind = "reasoning"
	ToolCall  Kind = "tool_call"
	Done      Kind = "done"
)

// Event is one piece of an answer. Its JSON form is what a spool keeps.
type Event struct {
	Kind Kind          `json:"kind"`
	Text string        `json:"text,omitempty"`
	Call *message.Call `json:"call,omitempty"`
	End  *End          `json:"end,omitempty"`
}

// End is what is known once an answer is complete.
type End struct {
	Usage message.Usage `json:"usage"`
	Stop  Stop          `json:"stop"`
	// Model is the provider's own name of what answered, empty if it told none.
	Model  string           `json:"model,omitempty"`
	Opaque []message.Opaque `json:"opaque,omitempty"`
}

// Stop says why an answer ended.
type Stop string

// The reasons. A provider's unknown reason counts as StopEnd.
const (
	StopEnd    Stop = "end"
	StopCalls  Stop = "calls"
	StopLength Stop = "length"
	StopFilter Stop = "filter"
)

// Answer collects the events of one attempt into a message. The zero value is ready.
type Answer struct {
	Message message.Message
	End     *End // nil until complete
	text    []byte
}

// Add takes the next event.
func (a *Answer) Add(e Event) {
	a.Message.Role = message.Assistant
	switch e.Kind {
	case Token:
		a.text = append(a.text, e.Text...)
	case ToolCall:
		a.Message.Calls = append(a.Message.Calls, *e.Call)
	case Done:
		a.End = e.End
		a.Message.Text = string(a.text)
		a.Message.Opaque = e.End.Opaque
	}
}

// Class is the class of a provider's error (K-31).
type Class string

// The classes. Retryable may work at the next attempt; Fatal will not work with this provider (key, money); BadRequest
// will not work with this request; TooLong wants a shorter context.
const (
	Retryable  Class = "retryable"
	Fatal      Class = "fatal"
	BadRequest Class = "bad request"
	TooLong    Class = "context too long"
)

// Error is how an attempt failed.
type Error struct {
	Class Class
	// Status is the HTTP status, 0 if there was none.
	Status int
	// Words are the provider's own, or the transport's; they hold no key.
	Words string
	// RetryAfter is what the provider asked for, 0 if nothing.
	RetryAfter time.Duration
}

func (e *Error) Error() string {
	if e.Status != 0 {
		return fmt.Sprintf("%s (HTTP %d)", e.Words, e.Status)
	}
	return e.Words
}

// Bounds on the calls of one answer, which every adapter keeps: their number, and the length of an id in bytes.
const (
	MaxCalls  = 128
	MaxCallID = 64
)

// EstimateTokens is the rough count of tokens in a text of so many bytes.
func EstimateTokens(bytes int) int64 { return int64(bytes+3) / 4 }

// ErrorOf returns err as an *Error; one of another type becomes BadRequest with its text. ctx errors are the caller's to
// look for first.
func ErrorOf(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Class: BadRequest, Words: err.Error()}
}
