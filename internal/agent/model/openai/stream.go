package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"soma/internal/agent/model"
	"soma/message"
)

// lastWords is how long a stream may go on after its finish reason, for the usage that may follow.
const lastWords = 5 * time.Second

type stream struct {
	client *Client
	body   io.ReadCloser
	kind   string // the content type of the body
	sse    *reader
	cancel context.CancelCauseFunc
	cause  func() error
	idle   *time.Timer

	queue  []model.Event
	calls  calls
	asked  int64 // estimate of the request's tokens
	size   int   // bytes of text and reasoning
	think  []byte
	field  string // that the reasoning came in
	model  string
	finish string
	usage  message.Usage
	known  bool // the provider reported usage
	ended  bool
	seen   bool // a chunk
}

// Next implements model.Stream. The idle timer runs while Next waits and starts anew with each piece that counts, so that
// neither pings nor a slow reader confuse it (K-33).
func (s *stream) Next(ctx context.Context) (model.Event, error) {
	stop := context.AfterFunc(ctx, func() { s.cancel(context.Cause(ctx)) })
	defer stop()
	s.arm()
	defer s.idle.Stop()
	for len(s.queue) == 0 {
		if s.ended {
			return model.Event{}, io.EOF
		}
		if err := s.read(); err != nil {
			return model.Event{}, err
		}
	}
	e := s.queue[0]
	s.queue = s.queue[1:]
	return e, nil
}

func (s *stream) arm() {
	d := s.client.idle
	if s.finish != "" {
		d = min(d, s.client.grace)
	}
	s.idle.Reset(d)
}

// read takes one event from the wire.
func (s *stream) read() error {
	data, err := s.sse.next()
	data = bytes.TrimSpace(data)
	if string(data) == "[DONE]" {
		return s.end()
	}
	if len(data) > 0 && data[0] == '{' {
		var c chunk
		if bad := json.Unmarshal(data, &c); bad == nil {
			if len(c.Error) > 0 && string(c.Error) != "null" {
				e := s.client.inner(c.Error, 0)
				if e.Words == "" {
					e.Words = s.client.clean(string(c.Error))
				}
				return e
			}
			if s.add(c) {
				s.arm()
			}
		} else if err == nil {
			return &model.Error{Class: model.Retryable, Words: "the stream holds a chunk that cannot be read: " + s.client.clean(bad.Error())}
		}
	}
	if err == nil {
		return nil
	}
	// The caller's own cancellation is no end of the answer; a connection lost after the finish reason is.
	cause := s.cause()
	if s.finish != "" && (cause == nil || errors.Is(cause, errIdle)) {
		return s.end()
	}
	return s.reason(err)
}

// reason says why an attempt ended without its answer.
func (s *stream) reason(err error) error {
	var known *model.Error
	cause := s.cause()
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(cause, errIdle):
		return &model.Error{Class: model.Retryable, Words: fmt.Sprintf("%s sent nothing that counts for %v", s.client.base, s.client.idle)}
	case cause != nil:
		return cause
	case errors.Is(err, errTooLarge):
		return &model.Error{Class: model.BadRequest, Words: err.Error()}
	case errors.Is(err, io.EOF) && s.foreign():
		return &model.Error{Class: model.Retryable, Words: fmt.Sprintf("%s answered with %s and no stream: is the base URL right?", s.client.base, s.client.clean(s.kind))}
	case errors.Is(err, io.EOF):
		return &model.Error{Class: model.Retryable, Words: "the stream ended before the answer was complete"}
	}
	return &model.Error{Class: model.Retryable, Words: "the stream broke off: " + s.client.clean(err.Error())}
}

// foreign reports whether the body was something else than an answer, such as a page.
func (s *stream) foreign() bool {
	kind, _, _ := strings.Cut(strings.ToLower(s.kind), ";")
	kind = strings.TrimSpace(kind)
	return kind != "" && kind != "text/event-stream" && kind != "application/json" && !s.seen
}

// add takes what a chunk holds and reports whether it counts as a sign of life.
func (s *stream) add(c chunk) bool {
	s.seen = true
	counts := false
	if u, ok := usage(c.Usage); ok {
		s.usage, s.known = u, true
	}
	if c.Model != "" {
		s.model = string(c.Model)
	}
	for _, ch := range c.Choices {
		if ch.Index != 0 {
			continue
		}
		for _, d := range []delta{ch.Delta, ch.Message} {
			counts = s.piece(d) || counts
		}
		if ch.FinishReason != "" {
			s.finish = string(ch.FinishReason)
			counts = true
		}
	}
	return counts
}

func (s *stream) piece(d delta) bool {
	thought, field := d.ReasoningContent, reasoningFields[0]
	if thought == "" {
		thought, field = d.Reasoning, reasoningFields[1]
	}
	if thought != "" {
		s.field = field
		s.think = append(s.think, thought...)
		s.say(model.Reasoning, thought)
	}
	if t := d.Content + d.Refusal; t != "" {
		s.say(model.Token, t)
	}
	if d.FunctionCall != nil {
		d.ToolCalls = append(d.ToolCalls, callDelta{Function: *d.FunctionCall})
	}
	for _, call := range d.ToolCalls {
		s.calls.add(call)
	}
	return thought != "" || d.Content+d.Refusal != "" || len(d.ToolCalls) > 0
}

func (s *stream) say(k model.Kind, t text) {
	s.size += len(t)
	s.queue = append(s.queue, model.Event{Kind: k, Text: string(t)})
}

// end queues what only the end of an answer brings.
func (s *stream) end() error {
	made := s.calls.done()
	if len(made) > model.MaxCalls {
		return &model.Error{Class: model.BadRequest, Words: fmt.Sprintf("the answer makes %d calls, the limit is %d", len(made), model.MaxCalls)}
	}
	s.ended = true
	for _, call := range made {
		s.queue = append(s.queue, model.Event{Kind: model.ToolCall, Call: &call})
	}
	e := &model.End{Usage: s.Usage(), Model: s.model, Stop: model.StopEnd}
	switch {
	case s.finish == "length":
		e.Stop = model.StopLength
	case s.finish == "content_filter":
		e.Stop = model.StopFilter
	case len(made) > 0:
		e.Stop = model.StopCalls
	}
	if len(s.think) > 0 {
		data, err := json.Marshal(string(s.think))
		if err != nil {
			panic(err) // a string
		}
		e.Opaque = []message.Opaque{{Family: s.client.family, Kind: s.field, Data: data}}
	}
	s.queue = append(s.queue, model.Event{Kind: model.Done, End: e})
	return nil
}

// Usage implements model.Stream.
func (s *stream) Usage() message.Usage {
	if s.known {
		return s.usage
	}
	return message.Usage{Input: s.asked, Output: model.EstimateTokens(s.size + s.calls.size), Estimated: true}
}

// Close implements model.Stream.
func (s *stream) Close() error {
	s.idle.Stop()
	s.cancel(nil)
	return s.body.Close()
}
