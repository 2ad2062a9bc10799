package script

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"soma/internal/agent/model"
	"soma/internal/agent/tool"
	"soma/message"
)

// Stream plays the step that the request's messages lead to. See model.Provider.
func (s *Script) Stream(ctx context.Context, r model.Request) (model.Stream, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	p := read(r)
	st, values, err := s.find(p, r)
	if err != nil {
		return nil, misfit(err)
	}
	out := &stream{
		usage: message.Usage{Input: asked(r), Estimated: true},
		done:  ctx.Done(), cause: func() error { return context.Cause(ctx) },
	}
	if st == nil {
		out.usage = message.Usage{}
		out.end(model.StopEnd)
		return out, nil
	}
	if err := s.fill(out, st, len(p.seen), values, r); err != nil {
		return nil, misfit(err)
	}
	return out, nil
}

// misfit is the error of a script that does not fit what really happened.
func misfit(err error) error {
	return &model.Error{Class: model.BadRequest, Words: "the script cannot go on: " + err.Error()}
}

// find goes through the steps as the answers so far did, and returns the one to play with its values; nil after the last.
func (s *Script) find(p position, r model.Request) (*step, map[string]any, error) {
	next := 0
	for answer, at := range p.seen {
		values := p.values(at, answer+1, r)
		for ; ; next++ {
			if next == len(s.steps) {
				return nil, nil, nil
			}
			ok, err := s.steps[next].applies(values, r.Facts)
			if err != nil {
				return nil, nil, err
			}
			if ok {
				break
			}
		}
		if answer == len(p.seen)-1 {
			return &s.steps[next], values, nil
		}
		next++
	}
	return nil, nil, nil
}

func (st *step) applies(values map[string]any, facts map[string]string) (bool, error) {
	if st.cond == nil {
		return true, nil
	}
	text, err := render(st.cond, values, facts)
	if err != nil {
		return false, err
	}
	switch strings.TrimSpace(text) {
	case "true":
		return true, nil
	case "false", "":
		return false, nil
	}
	return false, fmt.Errorf("%s: if gives %.40q, want true or false", st.cond.Name(), text)
}

// fill plans all that the step will stream, each event with the wait before it.
func (s *Script) fill(out *stream, st *step, answer int, values map[string]any, r model.Request) error {
	pace := s.pace
	if st.pace >= 0 {
		pace = st.pace
	}
	out.first, out.pace = s.scaled(st.delay), s.scaled(pace)
	for _, f := range st.faults {
		if len(f.attempts) == 0 || slices.Contains(f.attempts, int64(r.Attempt)) {
			out.fault, out.after = &f.err, int(f.after)
			break
		}
	}
	if st.say != nil {
		text, err := render(st.say, values, r.Facts)
		if err != nil {
			return err
		}
		out.tokens = tokens(text)
	}
	var made []message.Call
	for i, c := range st.calls {
		args, err := c.render(values, r.Facts)
		if err != nil {
			return err
		}
		made = append(made, tool.ParseCall(fmt.Sprintf("call_%d_%d", answer, i+1), c.tool, args))
		out.argBytes += len(args)
	}
	out.calls = made
	if u := st.usage; u != nil {
		out.reported = &message.Usage{Input: u.input, CacheRead: u.cacheRead, CacheWrite: u.cacheWrite, Output: u.output, Reasoning: u.reasoning}
	}
	return nil
}

func (c call) render(values map[string]any, facts map[string]string) (string, error) {
	if c.python == nil {
		return render(c.arguments, values, facts)
	}
	code, err := render(c.python, values, facts)
	if err != nil {
		return "", err
	}
	b, err := json.Marshal(struct {
		Code      string `json:"code"`
		TimeoutMS int64  `json:"timeout_ms,omitempty"`
	}{code, c.timeoutMS})
	return string(b), err
}

// tokens cuts a text before each word, so that the pieces put together are the text.
func tokens(text string) (out []string) {
	start, space := 0, true
	for i, r := range text {
		blank := r == ' ' || r == '\n' || r == '\t'
		if blank && !space {
			out = append(out, text[start:i])
			start = i
		}
		space = blank
	}
	if start < len(text) {
		out = append(out, text[start:])
	}
	return out
}

func asked(r model.Request) int64 {
	n := len(r.System)
	for _, m := range r.Messages {
		if m.Role != message.Note {
			n += len(m.Text)
			for _, c := range m.Calls {
				n += len(c.Tool) + len(c.Arguments)
			}
		}
	}
	return model.EstimateTokens(n)
}

// stream plays one planned answer.
type stream struct {
	done  <-chan struct{}
	cause func() error

	first, pace time.Duration
	tokens      []string
	said        int
	calls       []message.Call
	argBytes    int
	fault       *model.Error
	after       int
	reported    *message.Usage
	usage       message.Usage
	size        int
	tail        []model.Event
	ended       bool
}

// Next implements model.Stream.
func (s *stream) Next(ctx context.Context) (model.Event, error) {
	if err := s.wait(ctx); err != nil {
		return model.Event{}, err
	}
	switch {
	case s.fault != nil && (s.said >= s.after || s.said == len(s.tokens)):
		return model.Event{}, s.fault
	case s.said < len(s.tokens):
		text := s.tokens[s.said]
		s.said++
		s.size += len(text)
		return model.Event{Kind: model.Token, Text: text}, nil
	case !s.ended:
		s.size += s.argBytes
		stop := model.StopEnd
		for _, c := range s.calls {
			s.tail = append(s.tail, model.Event{Kind: model.ToolCall, Call: &c})
			stop = model.StopCalls
		}
		s.end(stop)
	}
	if len(s.tail) == 0 {
		return model.Event{}, io.EOF
	}
	e := s.tail[0]
	s.tail = s.tail[1:]
	return e, nil
}

func (s *stream) end(stop model.Stop) {
	s.ended = true
	if s.reported != nil {
		s.usage = *s.reported
	}
	s.tail = append(s.tail, model.Event{Kind: model.Done, End: &model.End{Usage: s.Usage(), Stop: stop}})
}

// wait lets the time before the next event pass: the step's delay before the first, its pace before each further token.
func (s *stream) wait(ctx context.Context) error {
	d := time.Duration(0)
	if !s.ended && s.said < len(s.tokens) && s.said > 0 {
		d = s.pace
	}
	d += s.first
	s.first = 0
	if d <= 0 {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.done:
			return s.cause()
		default:
			return nil
		}
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.done:
		return s.cause()
	case <-timer.C:
		return nil
	}
}

// Usage implements model.Stream.
func (s *stream) Usage() message.Usage {
	u := s.usage
	if u.Estimated {
		u.Output = model.EstimateTokens(s.size)
	}
	return u
}

// Close implements model.Stream.
func (s *stream) Close() error { return nil }
