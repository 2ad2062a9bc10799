package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"soma/internal/agent/model"
	"soma/internal/agent/tool"
	"soma/internal/crash"
	"soma/internal/neuron"
	"soma/message"
	"soma/wire"
)

// cancelled is the class of an attempt that was closed by an interrupt.
const cancelled = "cancelled"

// maxAnswer bounds the text of one answer in bytes; a provider that sends more is cut off.
const maxAnswer = 8 << 20

// inference is the adapter of the execution InferenceKind.
type inference Host

// Run asks the provider and returns an answer; an error of the provider is an answer with a failure, for its words and its
// tokens count.
func (f *inference) Run(ctx context.Context, x neuron.Execution) (json.RawMessage, error) {
	h := (*Host)(f)
	var in inferenceInput
	if err := json.Unmarshal(x.Input, &in); err != nil {
		return nil, fmt.Errorf("cannot read the inference: %w", err)
	}
	began := h.o.Now()
	a := answer{Model: in.Model, StartedAt: began}
	err := f.stream(ctx, in, &a)
	a.EndedAt = h.o.Now()
	switch {
	case ctx.Err() != nil: // interrupted, or the daemon stops and the next one makes the attempt again
		a.Failure, a.Message = &failure{Class: cancelled, Words: "interrupted"}, message.Message{}
		return encodeAnswer(a)
	case err != nil:
		e := model.ErrorOf(err)
		a.Failure = &failure{Class: string(e.Class), Words: e.Error(), RetryAfter: e.RetryAfter}
		a.Message = message.Message{}
	}
	b, err := encodeAnswer(a)
	if err == nil {
		err = h.spools.put(x.OutcomeID(), b)
	}
	if err != nil {
		// Without its spool the answer is asked for again after a crash, which is what would happen to any other loss.
		h.o.Log.Warn("cannot keep an answer until its commit", "pid", in.PID, "error", err)
	}
	return b, nil
}

func encodeAnswer(a answer) (json.RawMessage, error) {
	b, err := json.Marshal(a)
	if err != nil {
		return nil, fmt.Errorf("cannot encode the answer: %w", err)
	}
	return b, nil
}

// Recover finds the complete spool of an attempt that a crash cut off from its outcome: it is the answer, and no second
// bill comes.
func (f *inference) Recover(_ context.Context, x neuron.Execution) (json.RawMessage, bool, error) {
	b, found, err := (*Host)(f).spools.get(x.OutcomeID())
	return b, found, err
}

func (f *inference) stream(ctx context.Context, in inferenceInput, a *answer) error {
	h := (*Host)(f)
	m, err := h.o.Models.Find(in.Model)
	if err != nil {
		return &model.Error{Class: model.Fatal, Words: err.Error()}
	}
	a.Vendor, a.Model = m.Vendor, m.Model
	messages, err := h.histories.through(ctx, h, in.Branch, in.Through)
	if err != nil {
		return &model.Error{Class: model.Retryable, Words: err.Error()}
	}
	facts := map[string]string{"PID": in.PID.String()}
	for k, v := range h.o.Facts {
		facts[k] = v
	}
	s, err := m.Provider.Stream(ctx, model.Request{Model: m.Model, System: systemPrompt, Messages: messages, Tools: h.tools().List(),
		Attempt: in.Attempt, Facts: facts})
	if err != nil {
		return err
	}
	defer s.Close()
	defer func() { a.Usage = s.Usage() }()
	live := h.live.begin(in)
	defer h.live.end(in.Session, live)
	var got model.Answer
	size, tokens := 0, 0
	for {
		e, err := s.Next(ctx)
		if errors.Is(err, io.EOF) && got.End != nil {
			break
		}
		if err != nil {
			return err
		}
		got.Add(e)
		switch e.Kind {
		case model.Token, model.Reasoning:
			if size += len(e.Text); size > maxAnswer {
				return &model.Error{Class: model.Fatal, Words: fmt.Sprintf("the answer is longer than %d bytes", maxAnswer)}
			}
			h.o.Live(in.Session, wire.Delta, live.add(e.Text, e.Kind == model.Reasoning))
			if tokens++; tokens == 3 {
				crash.Point(crash.StreamMid)
			}
		}
	}
	a.Message = got.Message
	if got.End.Model != "" {
		a.Model = got.End.Model
	}
	return nil
}

const systemPrompt = "You are an agent that works in a folder on a person's machine. Use the python tool to look at things, compute and " +
	"check; do not guess what you can find out. When you are done, answer in plain text."

var tools = sync.OnceValue(func() *tool.Registry {
	r, err := tool.NewRegistry(tool.Python())
	if err != nil { // the definition is a constant
		panic(err)
	}
	return r
})

func (h *Host) tools() *tool.Registry { return tools() }

// liveTexts keep what the running attempts have shown, for who joins late.
type liveTexts struct {
	mu   sync.Mutex
	runs map[string]map[*liveText]bool // by session
}

type liveText struct {
	mu            sync.Mutex
	event         wire.DeltaEvent
	text, thought []byte
}

func (l *liveTexts) begin(in inferenceInput) *liveText {
	t := &liveText{event: wire.DeltaEvent{PID: uint64(in.PID), Step: in.Inference, Attempt: in.Attempt}}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.runs == nil {
		l.runs = map[string]map[*liveText]bool{}
	}
	if l.runs[in.Session] == nil {
		l.runs[in.Session] = map[*liveText]bool{}
	}
	l.runs[in.Session][t] = true
	return t
}

func (l *liveTexts) end(session string, t *liveText) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.runs[session], t)
	if len(l.runs[session]) == 0 {
		delete(l.runs, session)
	}
}

func (t *liveText) add(text string, reasoning bool) wire.DeltaEvent {
	t.mu.Lock()
	defer t.mu.Unlock()
	to := &t.text
	if reasoning {
		to = &t.thought
	}
	e := t.event
	e.Offset, e.Text, e.Reasoning = int64(len(*to)), text, reasoning
	*to = append(*to, text...)
	return e
}

// LiveTexts returns what the running attempts of a session have shown so far, each as one delta from offset 0.
func (h *Host) LiveTexts(session string) []wire.DeltaEvent {
	h.live.mu.Lock()
	defer h.live.mu.Unlock()
	var all []wire.DeltaEvent
	for t := range h.live.runs[session] {
		t.mu.Lock()
		for i, text := range [][]byte{t.thought, t.text} {
			if len(text) > 0 {
				e := t.event
				e.Text, e.Reasoning = string(text), i == 0
				all = append(all, e)
			}
		}
		t.mu.Unlock()
	}
	return all
}

var _ neuron.Adapter = (*inference)(nil)
