package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"soma/ident"
	"soma/internal/agent/model"
	"soma/internal/agent/tool"
	"soma/internal/crash"
	"soma/internal/neuron"
	"soma/internal/process/shorten"
	"soma/message"
	"soma/wire"
)

// maxAnswer bounds the text, reasoning and arguments of one answer in bytes; a provider that sends more is cut off.
const maxAnswer = 8 << 20

// inference is the adapter of the execution InferenceKind.
type inference Host

// Run asks the provider and returns an answer; an error of the provider is an answer with a failure, for its words and its
// tokens count.
func (f *inference) Run(ctx context.Context, x neuron.Execution) (json.RawMessage, error) {
	h := (*Host)(f)
	in, ok := x.Value.(inferenceInput)
	if !ok {
		if err := json.Unmarshal(x.Input, &in); err != nil {
			return nil, fmt.Errorf("cannot read the inference: %w", err)
		}
	}
	a := answer{Step: in.Inference, Model: in.Model, StartedAt: h.o.Now()}
	err := f.stream(ctx, in, &a)
	a.EndedAt = h.o.Now()
	if ctx.Err() != nil { // interrupted, or the daemon stops and the next one makes the attempt again
		a.Failure, a.Message = &failure{Class: cancelled, Words: "interrupted"}, message.Message{}
		return shorten.JSON(a), nil
	}
	if err != nil {
		e := model.ErrorOf(err)
		a.Failure, a.Message = &failure{Class: string(e.Class), Words: e.Error(), RetryAfter: e.RetryAfter}, message.Message{}
	}
	b := shorten.JSON(a)
	if err := h.spools.Put(x.OutcomeID(), b); err != nil {
		// Without its spool the answer is asked for again after a crash, which is what would happen to any other loss.
		h.o.Log.Warn("cannot keep an answer until its commit", "pid", in.PID, "error", err)
	}
	return b, nil
}

// Recover finds the complete spool of an attempt that the end of a daemon cut off from its outcome: it is the answer, and no
// second bill comes. Without one the attempt is lost.
func (f *inference) Recover(ctx context.Context, x neuron.Execution) (json.RawMessage, bool, error) {
	h := (*Host)(f)
	b, found, err := h.spools.Get(x.OutcomeID())
	if err != nil {
		h.o.Log.Warn("cannot read a spooled answer", "execution", x.ID, "error", err)
	}
	if found {
		return b, true, nil
	}
	var in inferenceInput
	if err := json.Unmarshal(x.Input, &in); err != nil {
		return nil, false, fmt.Errorf("cannot read the inference: %w", err)
	}
	a := answer{Step: in.Inference, Model: in.Model, StartedAt: x.StartedAt, EndedAt: h.o.Now(),
		Failure: &failure{Class: lost, Words: "the daemon ended while it ran"}}
	if m, err := h.o.Models.Find(ctx, in.Model); err == nil { // else nobody knows its price
		a.Vendor, a.Model = m.Vendor, m.Model
	}
	return shorten.JSON(a), true, nil
}

func (f *inference) stream(ctx context.Context, in inferenceInput, a *answer) error {
	h := (*Host)(f)
	m, err := h.o.Models.Find(ctx, in.Model)
	if err != nil {
		return &model.Error{Class: model.Fatal, Words: err.Error()}
	}
	a.Vendor, a.Model = m.Vendor, m.Model
	messages, err := h.histories.Through(ctx, h.messagesBetween, in.Branch, in.Through)
	if err != nil {
		return &model.Error{Class: model.Retryable, Words: err.Error()}
	}
	facts := map[string]string{"PID": in.PID.String()}
	for k, v := range h.o.Facts {
		facts[k] = v
	}
	s, err := m.Provider.Stream(ctx, model.Request{Model: m.Model, System: systemPrompt, Messages: messages, Tools: h.tools.List(),
		Image: h.image, Attempt: in.Attempt, Facts: facts})
	if err != nil {
		return err
	}
	defer s.Close()
	defer func() { a.Usage = s.Usage() }()
	live := h.live.Begin(in.Session, wire.DeltaEvent{PID: uint64(in.PID), Step: in.Inference, Attempt: in.Attempt})
	defer h.live.End(in.Session, live)
	var got model.Answer
	size, shown := 0, 0
	for {
		e, err := s.Next(ctx)
		if errors.Is(err, io.EOF) && got.End != nil {
			break
		}
		if err != nil {
			return err
		}
		got.Add(e)
		size += len(e.Text)
		if e.Kind == model.ToolCall {
			size += len(e.Call.Arguments)
		}
		if size > maxAnswer || len(got.Message.Calls) > model.MaxCalls {
			return &model.Error{Class: model.Fatal, Words: fmt.Sprintf("the answer is longer than %d bytes or makes more than %d calls", maxAnswer, model.MaxCalls)}
		}
		if e.Kind == model.Token || e.Kind == model.Reasoning {
			h.o.Live(in.Session, wire.Delta, live.Add(e.Text, e.Kind == model.Reasoning))
			if shown++; shown == 3 {
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

// newTools returns what a model may call, with the rules of the bindings.
func newTools(rules string) *tool.Registry {
	r, err := tool.NewRegistry(tool.Python(rules))
	if err != nil { // its name and schema are constants
		panic(err)
	}
	return r
}

// image returns the bytes of an image that a cell has shown, nil where they are not kept any more.
func (h *Host) image(ctx context.Context, content string) (b []byte, err error) {
	id, err := ident.Parse(content)
	if err != nil {
		return nil, err
	}
	err = h.o.Reader.Query(ctx, `select bytes from content where id = ?`, []any{id[:]}, func(scan func(...any) error) error { return scan(&b) })
	return b, err
}

var _ neuron.Adapter = (*inference)(nil)
