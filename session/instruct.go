package session

import (
	"context"
	"errors"
	"fmt"

	"soma/hook"
	"soma/ident"
	"soma/message"
)

// Model answers a conversation. Implementations are safe for use by several goroutines if branches share them.
type Model interface {
	Name() string
	// Answer returns one assistant message. It may call r.Chunk with each piece of the text as it comes, in its own goroutine.
	Answer(ctx context.Context, r Request) (message.Message, message.Usage, error)
}

// Request is what a model is asked.
type Request struct {
	Messages []message.Message
	Tools    []Tool
	Chunk    func(text string)
}

// Input is what a person or program wants of a branch.
type Input struct {
	Text   string
	Sender string
	// User is the person for whom it is done; empty means the session's.
	User string
	// Model names one of the branch's models; empty means the one that was set last.
	Model string
}

// MaxRounds is how often one instruction asks the model at most.
const MaxRounds = 100

// ErrRounds: the model still called tools when it had been asked MaxRounds times.
var ErrRounds = errors.New("too many rounds")

// Instruct works an input through, as a run named "instruct": prompt.submit, which can refuse it before anything is
// written; the instruction; then the model is asked (api.pre_call, api.stream_chunk for each piece, api.post_call) and the
// tools run that it calls (see Act), one after another, until it calls none. It returns the model's last message. The error
// wraps ErrNoModel, ErrRounds, the model's error, what refused the input, or that of the context.
//
// Instruct on one branch from several goroutines mixes their messages; it does not wait for the other.
func (b *Branch) Instruct(ctx context.Context, in Input) (Message, error) {
	if in.User != "" {
		ctx = WithUser(ctx, in.User)
	}
	answer, err := b.Run(ctx, OpInstruct, func(ctx context.Context) (any, error) { return b.instruct(ctx, in) })
	m, _ := answer.(Message)
	if err != nil {
		return m, fmt.Errorf("cannot instruct: %w", err)
	}
	return m, nil
}

func (b *Branch) instruct(ctx context.Context, in Input) (Message, error) {
	model, ok := b.model(in.Model)
	if !ok {
		return Message{}, fmt.Errorf("%w %q", ErrNoModel, in.Model)
	}
	m := Message{Role: Instruction, Text: in.Text, Sender: in.Sender, Recipient: b.id.String()}
	if err := b.hook(ctx, HookArgs{Point: hook.PromptSubmit, Message: &m}); err != nil {
		return Message{}, err
	}
	if _, err := b.AddContext(ctx, m); err != nil {
		return Message{}, err
	}
	for range MaxRounds {
		answer, calls, err := b.ask(ctx, model)
		if err != nil || len(calls) == 0 {
			return answer, err
		}
		for _, call := range calls {
			if _, err := b.Act(ctx, call); err != nil {
				return answer, err
			}
		}
		if err := context.Cause(ctx); err != nil {
			return answer, err
		}
	}
	return Message{}, ErrRounds
}

// ask asks the model once and writes its answer down.
func (b *Branch) ask(ctx context.Context, model Model) (Message, []message.Call, error) {
	conversation, err := b.Conversation()
	if err != nil {
		return Message{}, nil, err
	}
	args := HookArgs{Point: hook.APIPreCall, Model: model.Name()}
	b.hook(ctx, args)
	got, usage, err := answer(ctx, model, Request{Messages: conversation, Tools: b.Tools(), Chunk: func(text string) {
		b.hook(ctx, HookArgs{Point: hook.APIStreamChunk, Model: args.Model, Text: text})
	}})
	args.Point, args.Text, args.Err = hook.APIPostCall, got.Text, err
	b.hook(context.WithoutCancel(ctx), args)
	if err != nil {
		b.AddLog("model", args.Model+": "+err.Error())
		return Message{}, nil, fmt.Errorf("%s: %w", args.Model, err)
	}
	b.AddLog("model", fmt.Sprintf("%s: %d tokens", args.Model, usage.Total()))
	// What the model has said is written down although the context may have ended meanwhile.
	stored, err := b.AddContext(context.WithoutCancel(ctx), Message{
		ID: ident.New(b.now()), Role: Assistant, Text: got.Text, Opaque: got.Opaque, Sender: b.id.String(), Recipient: b.person(ctx),
	})
	return stored, got.Calls, err
}

func answer(ctx context.Context, model Model, r Request) (got message.Message, usage message.Usage, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = caught("the model", v)
		}
	}()
	return model.Answer(ctx, r)
}
