package openai

import (
	"cmp"
	"encoding/json"
	"regexp"
	"slices"

	"soma/internal/agent/model"
	"soma/message"
)

type request struct {
	Model         string           `json:"model"`
	Messages      []map[string]any `json:"messages"`
	Tools         []map[string]any `json:"tools,omitempty"`
	Stream        bool             `json:"stream"`
	StreamOptions map[string]bool  `json:"stream_options"`
}

// The kinds of opaque blocks are the names of the fields they came in and go back in.
var reasoningFields = []string{"reasoning_content", "reasoning"}

// body returns the request, and how many tokens it is taken to have. Without a picture book it shows no images.
func (c *Client) body(r model.Request, book *pictures) ([]byte, int64, error) {
	q := request{Model: r.Model, Messages: []map[string]any{}, Stream: true, StreamOptions: map[string]bool{"include_usage": true}}
	if r.System != "" {
		q.Messages = append(q.Messages, map[string]any{"role": "system", "content": r.System})
	}
	var shown []any // by the results before this message
	show := func() {
		if len(shown) > 0 {
			q.Messages = append(q.Messages, map[string]any{"role": "user", "content": shown})
			shown = nil
		}
	}
	for i, m := range r.Messages {
		if m.Role != message.Tool && m.Role != message.Note {
			show()
		}
		switch m.Role {
		case message.Note:
		case message.Tool:
			parts, left := book.of(i, m)
			shown = append(shown, parts...)
			q.Messages = append(q.Messages, map[string]any{"role": "tool", "tool_call_id": m.CallID, "content": m.Text + left})
		case message.Assistant:
			q.Messages = append(q.Messages, c.assistant(m))
		default:
			q.Messages = append(q.Messages, map[string]any{"role": string(m.Role), "content": m.Text})
		}
	}
	show()
	for _, t := range r.Tools {
		q.Tools = append(q.Tools, map[string]any{"type": "function", "function": map[string]any{
			"name": t.Name, "description": t.Description, "parameters": t.Schema,
		}})
	}
	b, err := json.Marshal(q)
	if err != nil {
		return nil, 0, &model.Error{Class: model.BadRequest, Words: "cannot write the request: " + err.Error()}
	}
	return b, model.EstimateTokens(len(b)-book.size()) + int64(book.count())*imageTokens, nil
}

var badName = regexp.MustCompile(`[^a-zA-Z0-9_-]`)

// toolName makes the name of a tool that a model invented fit to be sent back; an endpoint refuses the history otherwise.
func toolName(name string) string {
	name = badName.ReplaceAllString(name, "_")
	return cmp.Or(name[:min(len(name), 64)], "unknown")
}

func (c *Client) assistant(m message.Message) map[string]any {
	out := map[string]any{"role": "assistant", "content": m.Text}
	if len(m.Calls) == 0 {
		return out
	}
	if m.Text == "" {
		out["content"] = nil
	}
	var calls []map[string]any
	for _, call := range m.Calls {
		args := string(call.Arguments)
		if !json.Valid(call.Arguments) {
			args = "{}"
		}
		calls = append(calls, map[string]any{"id": call.ID, "type": "function", "function": map[string]any{"name": toolName(call.Tool), "arguments": args}})
	}
	out["tool_calls"] = calls
	// Reasoning goes back with calls only: servers that want it want it there, others refuse it elsewhere.
	for _, o := range m.Opaque {
		if o.Family == c.family && slices.Contains(reasoningFields, o.Kind) && json.Valid(o.Data) {
			out[o.Kind] = json.RawMessage(o.Data)
		}
	}
	return out
}
