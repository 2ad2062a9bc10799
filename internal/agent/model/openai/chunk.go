package openai

import (
	"bytes"
	"encoding/json"

	"soma/message"
)

// chunk is one event of a stream, or a whole completion, where Message stands for Delta.
type chunk struct {
	Model   text            `json:"model"`
	Choices []choice        `json:"choices"`
	Usage   json.RawMessage `json:"usage"`
	Error   json.RawMessage `json:"error"`
}

type choice struct {
	Index        int   `json:"index"`
	Delta        delta `json:"delta"`
	Message      delta `json:"message"`
	FinishReason text  `json:"finish_reason"`
}

type delta struct {
	Content          text        `json:"content"`
	Refusal          text        `json:"refusal"`
	ReasoningContent text        `json:"reasoning_content"`
	Reasoning        text        `json:"reasoning"`
	ToolCalls        []callDelta `json:"tool_calls"`
	FunctionCall     *function   `json:"function_call"`
}

type callDelta struct {
	Index    *int     `json:"index"`
	ID       text     `json:"id"`
	Function function `json:"function"`
}

type function struct {
	Name      text      `json:"name"`
	Arguments arguments `json:"arguments"`
}

// text is a string where servers also send null, a number, or a list of parts with texts.
type text string

func (t *text) UnmarshalJSON(b []byte) error {
	*t = ""
	switch {
	case len(b) == 0, b[0] == 'n', b[0] == 'f', b[0] == '{':
	case b[0] == '"':
		return json.Unmarshal(b, (*string)(t))
	case b[0] == '[':
		var parts []struct {
			Text string `json:"text"`
		}
		if json.Unmarshal(b, &parts) == nil {
			for _, p := range parts {
				*t += text(p.Text)
			}
		}
	default:
		*t = text(b)
	}
	return nil
}

// arguments is JSON as a string, which some servers send as the JSON itself.
type arguments string

func (a *arguments) UnmarshalJSON(b []byte) error {
	if b = bytes.TrimSpace(b); len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, (*string)(a))
	}
	if *a = arguments(b); *a == "null" {
		*a = ""
	}
	return nil
}

// usage turns a provider's counts, where cached tokens are part of the prompt, into classes that do not overlap (K-24).
func usage(raw json.RawMessage) (message.Usage, bool) {
	var u *struct {
		Prompt     int64 `json:"prompt_tokens"`
		Completion int64 `json:"completion_tokens"`
		Details    struct {
			Cached  int64 `json:"cached_tokens"`
			Written int64 `json:"cache_write_tokens"`
		} `json:"prompt_tokens_details"`
		Out struct {
			Reasoning int64 `json:"reasoning_tokens"`
		} `json:"completion_tokens_details"`
	}
	if len(raw) == 0 || json.Unmarshal(raw, &u) != nil || u == nil || u.Prompt <= 0 && u.Completion <= 0 {
		return message.Usage{}, false
	}
	prompt, completion := max(u.Prompt, 0), max(u.Completion, 0)
	read := min(max(u.Details.Cached, 0), prompt)
	written := min(max(u.Details.Written, 0), prompt-read)
	return message.Usage{
		Input: prompt - read - written, CacheRead: read, CacheWrite: written,
		Output: completion, Reasoning: min(max(u.Out.Reasoning, 0), completion),
	}, true
}
