package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"soma/hook"
	"soma/ident"
	"soma/message"
)

// Act lets a tool run and writes request and response into the branch, both together when it is done. It returns the
// response.
//
// The order: the session's gate is asked (an Action); if it refuses, no tool runs, no hook is called, and the response says
// denied. Else tool.pre, an error of which keeps the tool from running; the tool; exactly one of tool.post and tool.error;
// the messages. Whatever goes wrong with the tool stands in the response (Status, and Result {"error": …}) and is no error
// of Act, an unknown tool and a panic too. The error is that of writing the messages down (see AddContext); they are in the
// branch all the same. It wraps ErrInvalid for a call that names no tool, with which nothing is done at all.
func (b *Branch) Act(ctx context.Context, call message.Call) (Message, error) {
	if call.Tool == "" {
		return Message{}, fmt.Errorf("cannot act: %w call: it names no tool", ErrInvalid)
	}
	if len(call.Arguments) == 0 {
		call.Arguments = json.RawMessage("{}")
	}
	response := Message{Role: ActionResponse, Sender: b.id.String(), Recipient: b.id.String(), Status: message.OK}
	var err error
	if response.Result, err = b.act(ctx, call); err != nil {
		response.Status = statusOf(err)
		response.Result, _ = json.Marshal(map[string]string{"error": err.Error()})
	}
	response.Text = textOf(response.Result)
	request := Message{Role: ActionRequest, Sender: b.id.String(), Recipient: b.id.String(), Call: &call, Time: b.now()}
	request.ID = ident.New(b.now())
	response.Request = request.ID
	stored, err := b.add(context.WithoutCancel(ctx), request, response)
	if stored == nil {
		return Message{}, err
	}
	return stored[1], err
}

// textOf is what a model reads: a JSON string without its quotes, everything else as it is.
func textOf(result json.RawMessage) string {
	var text string
	if json.Unmarshal(result, &text) == nil {
		return text
	}
	return string(result)
}

// errDenied marks what was not allowed to run.
var errDenied = errors.New("denied")

func statusOf(err error) message.CallStatus {
	switch {
	case errors.Is(err, errDenied):
		return message.Denied
	case errors.Is(err, context.Canceled):
		return message.Cancelled
	case errors.Is(err, context.DeadlineExceeded):
		return message.TimedOut
	}
	return message.Error
}

// act judges and calls; the result is that of the tool as JSON.
func (b *Branch) act(ctx context.Context, call message.Call) (json.RawMessage, error) {
	action := Action{Branch: b.id, Tool: call.Tool, Arguments: call.Arguments, User: b.person(ctx)}
	if !b.Observer().Authorize(ctx, action) {
		b.AddLog("tool", call.Tool+" denied by the gate")
		return nil, fmt.Errorf("%w by the gate", errDenied)
	}
	args := HookArgs{Point: hook.ToolPre, Tool: call.Tool, Arguments: call.Arguments}
	var result any
	var encoded json.RawMessage
	err := b.hook(ctx, args)
	if err != nil {
		err = fmt.Errorf("%w: %w", errDenied, err)
	} else {
		result, encoded, err = b.call(ctx, call)
	}
	if err != nil {
		args.Point, args.Err = hook.ToolError, err
		b.AddLog("tool", call.Tool+": "+err.Error())
	} else {
		args.Point, args.Result = hook.ToolPost, result
		b.AddLog("tool", call.Tool)
	}
	b.hook(context.WithoutCancel(ctx), args)
	return encoded, err
}

// call returns the result of the tool, and its JSON, which may be the work of the program as well.
func (b *Branch) call(ctx context.Context, call message.Call) (result any, encoded json.RawMessage, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = caught("the tool", v)
		}
	}()
	if call.Malformed != "" {
		return nil, nil, fmt.Errorf("%w arguments: %s", ErrInvalid, call.Malformed)
	}
	tool, ok := b.tool(call.Tool)
	if !ok {
		return nil, nil, fmt.Errorf("tool %q %w", call.Tool, ErrNotFound)
	}
	if err := context.Cause(ctx); err != nil {
		return nil, nil, err
	}
	if result, err = tool.Run(ctx, call.Arguments); err != nil {
		return nil, nil, err
	}
	if encoded, err = json.Marshal(result); err != nil {
		return nil, nil, fmt.Errorf("the result has no JSON form: %w", err)
	}
	return result, encoded, nil
}
