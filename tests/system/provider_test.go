//go:build crash

package system_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"soma/message"
)

// reply is what the scripted model says at one step: words, then cells.
type reply struct {
	words []string
	cells []string
}

// provider is an endpoint of chat completions that plays a script: what it says follows from the history that it is sent. It
// keeps its own log of what it was asked.
type provider struct {
	url    string
	script []reply

	mu     sync.Mutex
	log    map[string][]asked // by the text of the first input
	broken []string           // histories that no provider may see
}

// asked is one request in the log.
type asked struct {
	step  int
	usage message.Usage
}

func newProvider(t *testing.T, script []reply) *provider {
	p := &provider{script: script, log: map[string][]asked{}}
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	p.url = server.URL + "/v1"
	return p
}

// chat is the part of a request that matters here.
type chat struct {
	Messages []struct {
		Role      string `json:"role"`
		Content   string `json:"content"`
		CallID    string `json:"tool_call_id"`
		ToolCalls []struct {
			ID string `json:"id"`
		} `json:"tool_calls"`
	} `json:"messages"`
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var c chat
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil || r.URL.Path != "/v1/chat/completions" {
		http.Error(w, "no", http.StatusBadRequest)
		return
	}
	var history []message.Message
	var input string
	step := 1
	for _, m := range c.Messages {
		one := message.Message{Role: message.Role(m.Role), CallID: m.CallID}
		for _, call := range m.ToolCalls {
			one.Calls = append(one.Calls, message.Call{ID: call.ID})
		}
		switch {
		case one.Role == message.Assistant:
			step++
		case one.Role == message.User && input == "":
			input = m.Content
		}
		history = append(history, one)
	}
	if step > len(p.script) {
		http.Error(w, fmt.Sprintf("the script has no step %d", step), http.StatusBadRequest)
		return
	}
	usage := p.note(input, step, history)
	p.play(w, step, usage)
}

// note enters a request into the log and gives its usage, which no other request of this input has.
func (p *provider) note(input string, step int, history []message.Message) message.Usage {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := message.CheckPaired(history); err != nil {
		p.broken = append(p.broken, err.Error())
	}
	usage := message.Usage{Input: int64(1000*step + len(p.log[input])), CacheRead: 100, Output: int64(20 + step)}
	p.log[input] = append(p.log[input], asked{step, usage})
	return usage
}

// play streams the reply of a step.
func (p *provider) play(w http.ResponseWriter, step int, usage message.Usage) {
	reply := p.script[step-1]
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(v any) {
		b, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(w, "data: %s\n\n", b)
		_ = http.NewResponseController(w).Flush()
	}
	delta := func(d map[string]any, finish any) {
		send(map[string]any{"model": "scripted", "choices": []any{map[string]any{"index": 0, "delta": d, "finish_reason": finish}}})
	}
	for _, word := range reply.words {
		delta(map[string]any{"content": word}, nil)
	}
	finish := "stop"
	for i, code := range reply.cells {
		arguments, err := json.Marshal(map[string]string{"code": code})
		if err != nil {
			panic(err)
		}
		delta(map[string]any{"tool_calls": []any{map[string]any{
			"index": i, "id": fmt.Sprintf("call_%d_%d", step, i), "type": "function",
			"function": map[string]any{"name": "python", "arguments": string(arguments)},
		}}}, nil)
		finish = "tool_calls"
	}
	delta(map[string]any{}, finish)
	send(map[string]any{"choices": []any{}, "usage": map[string]any{
		"prompt_tokens": usage.Input + usage.CacheRead, "completion_tokens": usage.Output,
		"prompt_tokens_details": map[string]any{"cached_tokens": usage.CacheRead},
	}})
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// requests returns the log of one input.
func (p *provider) requests(input string) []asked {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.log[input])
}

func (p *provider) unpaired() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.broken) > 0 {
		return fmt.Errorf("the provider was sent a history that is not paired: %s", strings.Join(p.broken, "; "))
	}
	return nil
}
