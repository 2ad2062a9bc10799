package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"soma/internal/agent/model"
	"soma/internal/agent/tool"
	"soma/message"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = "sk-very-secret"

// endpoint serves one handler and gives a client of it.
func endpoint(t *testing.T, idle time.Duration, h http.HandlerFunc) *Client {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// only a body that was read lets the server see its client go away
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		h(w, r)
	}))
	t.Cleanup(srv.Close)
	c, err := New(Config{BaseURL: srv.URL + "/v1/", Key: key, IdleTimeout: idle})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// bytesOf serves a recorded stream.
func bytesOf(stream string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, stream)
	}
}

// cut serves the beginning of a stream, then breaks the connection.
func cut(stream string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, stream)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
}

func ask() model.Request {
	return model.Request{Model: "m", Attempt: 1, Messages: []message.Message{{Role: message.User, Text: "hi"}}}
}

// run plays one attempt to its end.
func run(t *testing.T, c *Client, r model.Request) (model.Answer, message.Usage, error) {
	t.Helper()
	var a model.Answer
	s, err := c.Stream(t.Context(), r)
	if err != nil {
		return a, message.Usage{}, err
	}
	defer s.Close()
	for {
		e, err := s.Next(t.Context())
		switch {
		case err == io.EOF && a.End == nil:
			t.Fatal("EOF before Done")
		case err == io.EOF:
			return a, s.Usage(), nil
		case err != nil:
			return a, s.Usage(), err
		case a.End != nil:
			t.Fatalf("an event after Done: %+v", e)
		}
		a.Add(e)
	}
}

const plain = `data: {"id":"1","object":"chat.completion.chunk","model":"m-1","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null}

data: {"choices":[{"index":0,"delta":{"content":"Hel"},"finish_reason":null}],"usage":null}

data: {"choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":null}],"usage":null}

data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}

data: {"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120,"prompt_tokens_details":{"cached_tokens":60,"cache_write_tokens":10},"completion_tokens_details":{"reasoning_tokens":5}}}

data: [DONE]

`

// K-30, K-24: a stream as OpenAI sends it, with usage in an extra chunk.
func TestPlain(t *testing.T) {
	a, u, err := run(t, endpoint(t, 0, bytesOf(plain)), ask())
	if err != nil {
		t.Fatal(err)
	}
	want := message.Usage{Input: 30, CacheRead: 60, CacheWrite: 10, Output: 20, Reasoning: 5}
	if a.Message.Text != "Hello" || a.End.Stop != model.StopEnd || a.End.Model != "m-1" || a.End.Usage != want || u != want {
		t.Errorf("%+v %+v", a.Message, a.End)
	}
}

// call is one expected tool call.
type call struct{ id, name, args string }

// K-35: what compatible servers really send.
func TestOddStreams(t *testing.T) {
	delta := func(d string) string { return `data: {"choices":[{"delta":` + d + `}]}` + "\n\n" }
	finish := func(why string) string {
		return `data: {"choices":[{"delta":{},"finish_reason":"` + why + `"}]}` + "\n\ndata: [DONE]\n\n"
	}
	tools := func(d string) string { return delta(`{"tool_calls":[` + d + `]}`) }
	for name, c := range map[string]struct {
		stream string
		text   string
		calls  []call
		stop   model.Stop
		usage  message.Usage // zero: estimated
	}{
		"CRLF":               {stream: strings.ReplaceAll(plain, "\n", "\r\n"), text: "Hello", usage: message.Usage{Input: 30, CacheRead: 60, CacheWrite: 10, Output: 20, Reasoning: 5}},
		"CR only":            {stream: strings.ReplaceAll(plain, "\n", "\r"), text: "Hello", usage: message.Usage{Input: 30, CacheRead: 60, CacheWrite: 10, Output: 20, Reasoning: 5}},
		"byte order mark":    {stream: "\xef\xbb\xbf" + delta(`{"content":"a"}`) + finish("stop"), text: "a"},
		"no space":           {stream: "data:" + `{"choices":[{"delta":{"content":"a"}}]}` + "\n\n" + finish("stop"), text: "a"},
		"comments and pings": {stream: ": ping\n\n" + delta(`{"content":"a"}`) + ": OPENROUTER PROCESSING\n\nevent: ping\ndata: {}\n\n" + finish("stop"), text: "a"},
		"multi-line data":    {stream: "data: {\"choices\":\ndata: [{\"delta\":{\"content\":\"a\"}}]}\n\n" + finish("stop"), text: "a"},
		"no DONE":            {stream: delta(`{"content":"a"}`) + `data: {"choices":[{"delta":{},"finish_reason":"stop"}]}` + "\n\n", text: "a"},
		"no last blank line": {stream: delta(`{"content":"a"}`) + `data: {"choices":[{"delta":{},"finish_reason":"stop"}]}`, text: "a"},
		"no finish reason":   {stream: delta(`{"content":"a"}`) + "data: [DONE]\n\n", text: "a"},
		"null everywhere":    {stream: delta(`{"content":null,"tool_calls":null,"reasoning_content":null,"function_call":null}`) + delta(`{"content":"a"}`) + finish("stop"), text: "a"},
		"content in parts":   {stream: delta(`{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`) + finish("stop"), text: "ab"},
		"refusal":            {stream: delta(`{"refusal":"I can't."}`) + finish("stop"), text: "I can't."},
		"second choice":      {stream: delta(`{"content":"a"}`) + `data: {"choices":[{"index":1,"delta":{"content":"b"}}]}` + "\n\n" + finish("stop"), text: "a"},
		"length":             {stream: delta(`{"content":"a"}`) + finish("length"), text: "a", stop: model.StopLength},
		"filter":             {stream: delta(`{"content":"a"}`) + finish("content_filter"), text: "a", stop: model.StopFilter},
		"usage in the last chunk": {stream: delta(`{"content":"a"}`) + `data: {"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":2}}` + "\n\ndata: [DONE]\n\n",
			text: "a", usage: message.Usage{Input: 7, Output: 2}},
		"usage in every chunk": {stream: `data: {"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":7,"completion_tokens":1}}` + "\n\n" +
			`data: {"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":2}}` + "\n\n",
			text: "a", usage: message.Usage{Input: 7, Output: 2}},
		"usage that is nonsense": {stream: `data: {"choices":[{"delta":{"content":"a"}}],"usage":"none"}` + "\n\n" + finish("stop"), text: "a"},
		"one call in fragments": {stream: tools(`{"index":0,"id":"c1","type":"function","function":{"name":"python","arguments":""}}`) +
			tools(`{"index":0,"function":{"arguments":"{\"code\":"}}`) + tools(`{"index":0,"function":{"arguments":"\"1\"}"}}`) + finish("tool_calls"),
			calls: []call{{"c1", "python", `{"code":"1"}`}}},
		"two calls, fragments mixed": {stream: tools(`{"index":0,"id":"c1","function":{"name":"python","arguments":"{"}},{"index":1,"id":"c2","function":{"name":"now","arguments":"{"}}`) +
			tools(`{"index":1,"function":{"arguments":"}"}}`) + tools(`{"index":0,"function":{"arguments":"\"code\":\"1\"}"}}`) + finish("tool_calls"),
			calls: []call{{"c1", "python", `{"code":"1"}`}, {"c2", "now", `{}`}}},
		"id and name repeated, stop at the end": {stream: tools(`{"index":0,"id":"c1","function":{"name":"python","arguments":"{\"code\":"}}`) +
			tools(`{"index":0,"id":"c1","function":{"name":"python","arguments":"\"1\"}"}}`) + finish("stop"),
			calls: []call{{"c1", "python", `{"code":"1"}`}}},
		"name repeated without id": {stream: tools(`{"index":0,"function":{"name":"python","arguments":"{\"code\":"}}`) +
			tools(`{"index":0,"function":{"name":"python","arguments":"\"1\"}"}}`) + finish("tool_calls"),
			calls: []call{{"call_0", "python", `{"code":"1"}`}}},
		"another id in each fragment": {stream: tools(`{"index":0,"id":"c1","function":{"name":"python","arguments":"{\"code\":"}}`) +
			tools(`{"index":0,"id":"c2","function":{"arguments":"\"1\"}"}}`) + finish("tool_calls"),
			calls: []call{{"c1", "python", `{"code":"1"}`}}},
		"no index, fragments": {stream: tools(`{"id":"c1","function":{"name":"python","arguments":"{\"code\":"}}`) +
			tools(`{"function":{"arguments":"\"1\"}"}}`) + tools(`{"id":"c2","function":{"name":"now","arguments":"{}"}}`) + finish("tool_calls"),
			calls: []call{{"c1", "python", `{"code":"1"}`}, {"c2", "now", `{}`}}},
		"whole calls without index and id": {stream: tools(`{"function":{"name":"now","arguments":"{}"}},{"function":{"name":"now","arguments":"{}"}}`) + finish("stop"),
			calls: []call{{"call_0", "now", `{}`}, {"call_1", "now", `{}`}}},
		"every index 0": {stream: tools(`{"index":0,"id":"c1","function":{"name":"now","arguments":"{}"}}`) + tools(`{"index":0,"id":"c2","function":{"name":"now","arguments":"{}"}}`) + finish("tool_calls"),
			calls: []call{{"c1", "now", `{}`}, {"c2", "now", `{}`}}},
		"every id the same": {stream: tools(`{"index":0,"id":"c","function":{"name":"now","arguments":"{}"}},{"index":1,"id":"c","function":{"name":"now","arguments":"{}"}}`) + finish("tool_calls"),
			calls: []call{{"c", "now", `{}`}, {"call_1", "now", `{}`}}},
		"arguments as an object": {stream: tools(`{"index":0,"id":"c","function":{"name":"python","arguments":{"code":"1"}}}`) + finish("tool_calls"),
			calls: []call{{"c", "python", `{"code":"1"}`}}},
		"arguments null": {stream: tools(`{"index":0,"id":"c","function":{"name":"now","arguments":null}}`) + finish("tool_calls"),
			calls: []call{{"c", "now", `{}`}}},
		"an old function_call": {stream: delta(`{"function_call":{"name":"now","arguments":"{"}}`) + delta(`{"function_call":{"arguments":"}"}}`) + finish("function_call"),
			calls: []call{{"call_0", "now", `{}`}}},
		"text and call": {stream: delta(`{"content":"let me see"}`) + tools(`{"index":0,"id":"c","function":{"name":"now","arguments":"{}"}}`) + finish("tool_calls"),
			text: "let me see", calls: []call{{"c", "now", `{}`}}},
		"an id too long": {stream: tools(`{"index":0,"id":"`+strings.Repeat("x", 200)+`","function":{"name":"now","arguments":"{}"}}`) + finish("tool_calls"),
			calls: []call{{"call_0", "now", `{}`}}},
	} {
		t.Run(name, func(t *testing.T) {
			a, _, err := run(t, endpoint(t, 0, bytesOf(c.stream)), ask())
			if err != nil {
				t.Fatal(err)
			}
			if a.Message.Text != c.text {
				t.Errorf("text %q, want %q", a.Message.Text, c.text)
			}
			var got []call
			for _, m := range a.Message.Calls {
				got = append(got, call{m.ID, m.Tool, string(m.Arguments)})
			}
			if fmt.Sprint(got) != fmt.Sprint(c.calls) {
				t.Errorf("calls %v, want %v", got, c.calls)
			}
			stop := c.stop
			switch {
			case len(c.calls) > 0:
				stop = model.StopCalls
			case stop == "":
				stop = model.StopEnd
			}
			if a.End.Stop != stop {
				t.Errorf("stop %s, want %s", a.End.Stop, stop)
			}
			if c.usage == (message.Usage{}) {
				if u := a.End.Usage; !u.Estimated || u.Input == 0 || u.Output == 0 {
					t.Errorf("usage %+v is no estimate", u)
				}
			} else if a.End.Usage != c.usage {
				t.Errorf("usage %+v, want %+v", a.End.Usage, c.usage)
			}
		})
	}
}

// K-35: a server that knows no streaming answers in one piece.
func TestWholeBody(t *testing.T) {
	c := endpoint(t, 0, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		fmt.Fprint(w, "{\n \"choices\":[{\"message\":{\"role\":\"assistant\",\"content\":\"a\"},\"finish_reason\":\"stop\"}],\n\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}}\n")
	})
	a, _, err := run(t, c, ask())
	if err != nil || a.Message.Text != "a" || a.End.Usage != (message.Usage{Input: 3, Output: 1}) {
		t.Fatalf("%+v, %v", a, err)
	}
}

// A line beyond what a plain scanner takes is read whole.
func TestLongLine(t *testing.T) {
	long := strings.Repeat("x", 3<<20)
	a, _, err := run(t, endpoint(t, 0, bytesOf(`data: {"choices":[{"delta":{"content":"`+long+`"},"finish_reason":"stop"}]}`+"\n\n")), ask())
	if err != nil || a.Message.Text != long {
		t.Fatalf("%d bytes, %v", len(a.Message.Text), err)
	}
	c := endpoint(t, 0, func(w http.ResponseWriter, r *http.Request) {
		chunk := []byte("data: " + strings.Repeat("x", 1<<20))
		for {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	var e *model.Error
	if _, _, err = run(t, c, ask()); !errors.As(err, &e) || e.Class != model.BadRequest {
		t.Fatalf("a line without end: %v", err)
	}
}

// K-31, K-32: a stream that ends before its answer does is no answer; its tokens are estimated.
func TestCutStream(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"connection": cut(plain[:strings.Index(plain, `"lo"`)]),
		"early end":  bytesOf(plain[:strings.Index(plain, `data: {"choices":[{"index":0,"delta":{},`)]),
		"no headers": func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) },
		"bad chunk":  bytesOf("data: {\"choices\":[{\"delta\":{\"content\":\"Hel\"}}]}\n\ndata: {\"choices\":[{]}\n\n"),
		"nothing":    bytesOf(""),
	} {
		t.Run(name, func(t *testing.T) {
			a, u, err := run(t, endpoint(t, 0, h), ask())
			var e *model.Error
			if !errors.As(err, &e) || e.Class != model.Retryable || a.End != nil {
				t.Fatalf("%v, %+v", err, a.End)
			}
			if name != "no headers" && (!u.Estimated || u.Input == 0) {
				t.Errorf("usage %+v", u)
			}
		})
	}
}

// A page in place of an answer is named, and never shown.
func TestPageInPlaceOfAnAnswer(t *testing.T) {
	c := endpoint(t, 0, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, "<html>\n<p>Sign in</p>\n</html>\n")
	})
	_, _, err := run(t, c, ask())
	var e *model.Error
	if want := c.base + " answered with text/html; charset=utf-8 and no stream: is the base URL right?"; !errors.As(err, &e) || e.Words != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// K-35: what is lost after the finish reason costs only the usage, not the answer.
func TestCutAfterFinish(t *testing.T) {
	a, _, err := run(t, endpoint(t, 0, cut(plain[:strings.Index(plain, `data: {"choices":[],"usage"`)])), ask())
	if err != nil || a.Message.Text != "Hello" || !a.End.Usage.Estimated {
		t.Fatalf("%+v, %v", a, err)
	}
}

// forever sends the same piece until the client goes away.
func forever(first, piece string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, first)
		for r.Context().Err() == nil {
			fmt.Fprint(w, piece)
			w.(http.Flusher).Flush()
		}
	}
}

// K-33: comments, pings and empty chunks are no sign of life.
func TestIdle(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"comments":     forever("", ": ping\n\n"),
		"empty chunks": forever("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n", "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n"),
		"no headers":   func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	} {
		t.Run(name, func(t *testing.T) {
			// long enough that a busy machine makes no such pause between two of the pieces
			_, _, err := run(t, endpoint(t, 300*time.Millisecond, h), ask())
			var e *model.Error
			if !errors.As(err, &e) || e.Class != model.Retryable || !strings.Contains(e.Words, "nothing that counts for 300ms") {
				t.Fatal(err)
			}
		})
	}
	// after the finish reason a short silence is the end
	c := endpoint(t, 0, forever("data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\n", ": ping\n\n"))
	c.grace = 50 * time.Millisecond
	a, _, err := run(t, c, ask())
	if err != nil || a.Message.Text != "a" {
		t.Fatalf("%+v, %v", a, err)
	}
}

// K-33: fragments of a call are signs of life, though no event comes of them until the end.
func TestCallFragmentsAreLife(t *testing.T) {
	const idle = 200 * time.Millisecond
	c := endpoint(t, idle, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		tick := time.NewTicker(idle / 8)
		defer tick.Stop()
		for range 16 {
			<-tick.C
			fmt.Fprint(w, `data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"now","arguments":" "}}]}}]}`+"\n\n")
			w.(http.Flusher).Flush()
		}
		fmt.Fprint(w, "data: [DONE]\n\n")
	})
	if a, _, err := run(t, c, ask()); err != nil || len(a.Message.Calls) != 1 {
		t.Fatalf("%+v, %v", a, err)
	}
}

// K-12: a cancelled attempt ends at once, with the caller's own cause, from both contexts and while the server is silent.
func TestCancel(t *testing.T) {
	silent := func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
	why := errors.New("interrupted")
	for _, whole := range []bool{true, false} {
		c := endpoint(t, 0, silent)
		ctx, cancel := context.WithCancelCause(t.Context())
		outer, inner := ctx, t.Context()
		if !whole {
			outer, inner = inner, outer
		}
		s, err := c.Stream(outer, ask())
		if err != nil {
			t.Fatal(err)
		}
		go cancel(why)
		if _, err := s.Next(inner); !errors.Is(err, why) {
			t.Errorf("whole %v: %v", whole, err)
		}
		s.Close()
	}
	c := endpoint(t, 0, func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	ctx, cancel := context.WithCancelCause(t.Context())
	go cancel(why)
	if _, err := c.Stream(ctx, ask()); !errors.Is(err, why) {
		t.Error(err)
	}
}

// K-31, I-54: refusals are classed and carry the provider's own words, never the key.
func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		header http.Header
		body   string
		want   model.Error
	}{
		"quota":          {429, nil, `{"error":{"message":"You exceeded your quota","type":"insufficient_quota","code":"insufficient_quota"}}`, model.Error{Class: model.Fatal, Status: 429, Words: "You exceeded your quota"}},
		"rate":           {429, http.Header{"Retry-After": {"2.5"}}, `{"error":{"message":"slow down"}}`, model.Error{Class: model.Retryable, Status: 429, Words: "slow down", RetryAfter: 2500 * time.Millisecond}},
		"rate in ms":     {429, http.Header{"Retry-After-Ms": {"300"}}, `{"error":{"message":"slow down"}}`, model.Error{Class: model.Retryable, Status: 429, Words: "slow down", RetryAfter: 300 * time.Millisecond}},
		"key":            {401, nil, `{"error":{"message":"Incorrect API key provided: ` + key + `."}}`, model.Error{Class: model.Fatal, Status: 401, Words: "Incorrect API key provided: [key]."}},
		"html":           {502, nil, "<html>\n<h1>502 Bad Gateway</h1></html>", model.Error{Class: model.Retryable, Status: 502, Words: "<html> <h1>502 Bad Gateway</h1></html>"}},
		"empty":          {503, nil, "", model.Error{Class: model.Retryable, Status: 503, Words: "service unavailable"}},
		"bare text":      {404, nil, `{"error":"model 'x' not found"}`, model.Error{Class: model.BadRequest, Status: 404, Words: "model 'x' not found"}},
		"detail":         {422, nil, `{"detail":[{"loc":["body"],"msg":"bad"}]}`, model.Error{Class: model.BadRequest, Status: 422, Words: `[{"loc":["body"],"msg":"bad"}]`}},
		"message":        {400, nil, `{"object":"error","message":"This model's maximum context length is 8 tokens","code":400}`, model.Error{Class: model.TooLong, Status: 400, Words: "This model's maximum context length is 8 tokens"}},
		"context length": {400, nil, `{"error":{"message":"too many","code":"context_length_exceeded"}}`, model.Error{Class: model.TooLong, Status: 400, Words: "too many"}},
		"redirect":       {307, http.Header{"Location": {"http://127.0.0.1:1/"}}, "", model.Error{Class: model.BadRequest, Status: 307, Words: "the endpoint points to another address; redirects are not followed"}},
	} {
		t.Run(name, func(t *testing.T) {
			cl := endpoint(t, 0, func(w http.ResponseWriter, r *http.Request) {
				for k, v := range c.header {
					w.Header()[k] = v
				}
				w.WriteHeader(c.status)
				fmt.Fprint(w, c.body)
			})
			_, _, err := run(t, cl, ask())
			var e *model.Error
			if !errors.As(err, &e) || *e != c.want {
				t.Errorf("%+v, want %+v", e, c.want)
			}
			if strings.Contains(err.Error(), key) {
				t.Errorf("the key is in %q", err)
			}
		})
	}
	// nobody listens
	cl := endpoint(t, 0, bytesOf(""))
	cl.base = "http://127.0.0.1:1/v1"
	_, _, err := run(t, cl, ask())
	if e := model.ErrorOf(err); e.Class != model.Retryable || !strings.Contains(e.Words, "127.0.0.1:1") || !strings.Contains(e.Words, "refused") {
		t.Errorf("%+v", e)
	}
}

// K-31, K-35: an error inside a stream that began well.
func TestErrorInStream(t *testing.T) {
	for text, want := range map[string]model.Error{
		`{"error":{"message":"The server had an error","type":"server_error","code":null}}`: {Class: model.Retryable, Words: "The server had an error"},
		`{"error":{"message":"slow down","code":429}}`:                                      {Class: model.Retryable, Status: 429, Words: "slow down"},
		`{"error":{"message":"bad tool","type":"invalid_request_error"}}`:                   {Class: model.BadRequest, Words: "bad tool"},
		`{"error":"overflow"}`: {Class: model.BadRequest, Words: "overflow"},
		`{"error":{"message":"no money","code":"insufficient_quota"}}`:           {Class: model.Fatal, Words: "no money"},
		`{"error":{"message":"the request exceeds the available context size"}}`: {Class: model.TooLong, Words: "the request exceeds the available context size"},
		`{"error":{"odd":1}}`: {Class: model.BadRequest, Words: `{"odd":1}`},
	} {
		a, u, err := run(t, endpoint(t, 0, bytesOf("data: {\"choices\":[{\"delta\":{\"content\":\"Hel\"}}]}\n\ndata: "+text+"\n\n")), ask())
		var e *model.Error
		if !errors.As(err, &e) || *e != want || a.End != nil || !u.Estimated {
			t.Errorf("%s: %+v, want %+v", text, e, want)
		}
	}
}

// K-29, K-09: what goes upstream: system first, pairs, valid arguments, reasoning to its own family only, no notes.
func TestRequestBody(t *testing.T) {
	var body, auth, path string
	c := endpoint(t, 0, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		body, auth, path = string(b), r.Header.Get("Authorization"), r.URL.Path
		bytesOf(`data: {"choices":[{"delta":{"reasoning_content":"I \u00e9 "}}]}`+"\n\n"+`data: {"choices":[{"delta":{"reasoning_content":"think"}}]}`+"\n\n"+
			`data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"python","arguments":"{\"code\":"}}]},"finish_reason":"length"}]}`+"\n\n")(w, r)
	})
	r := ask()
	r.System = "be brief"
	r.Tools = []tool.Definition{tool.Python("")}
	r.Messages = append([]message.Message{{Role: message.Note, Text: "a note"}}, r.Messages...)
	a, _, err := run(t, c, r)
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Message.Calls) != 1 || !strings.Contains(a.Message.Calls[0].Malformed, "break off") {
		t.Fatalf("%+v", a.Message)
	}
	if want := `"I é think"`; len(a.Message.Opaque) != 1 || string(a.Message.Opaque[0].Data) != want {
		t.Fatalf("opaque %+v", a.Message.Opaque)
	}
	a.Message.Opaque = append(a.Message.Opaque, message.Opaque{Family: "openai@elsewhere", Kind: "reasoning", Data: json.RawMessage(`"foreign"`)})
	r.Messages = append(r.Messages, a.Message, message.Message{Role: message.Tool, CallID: "c", Text: "cut"},
		message.Message{Role: message.Assistant, Text: "done", Opaque: a.Message.Opaque})
	if _, _, err := run(t, c, r); err != nil {
		t.Fatal(err)
	}
	if auth != "Bearer "+key || path != "/v1/chat/completions" {
		t.Errorf("authorization %q, path %q", auth, path)
	}
	schema, _ := json.Marshal(tool.Python("").Schema)
	text, _ := json.Marshal(tool.Python("").Description)
	want := `{"model":"m","messages":[{"content":"be brief","role":"system"},{"content":"hi","role":"user"},` +
		`{"content":null,"reasoning_content":"I é think","role":"assistant","tool_calls":[{"function":{"arguments":"{}","name":"python"},"id":"c","type":"function"}]},` +
		`{"content":"cut","role":"tool","tool_call_id":"c"},{"content":"done","role":"assistant"}],` +
		`"tools":[{"function":{"description":` + string(text) + `,"name":"python","parameters":` + string(schema) + `},"type":"function"}],` +
		`"stream":true,"stream_options":{"include_usage":true}}`
	if body != want {
		t.Errorf("body\n got %s\nwant %s", body, want)
	}
	for name, want := range map[string]string{"functions.run it": "functions_run_it", "": "unknown", strings.Repeat("é", 50): strings.Repeat("_", 50)} {
		if got := toolName(name); got != want {
			t.Errorf("tool %q goes back as %q", name, got)
		}
	}
	r.Messages = r.Messages[:len(r.Messages)-2]
	body = ""
	if _, _, err := run(t, c, r); model.ErrorOf(err).Class != model.BadRequest || body != "" {
		t.Errorf("unpaired history: %v, sent %q", err, body)
	}
}

func TestList(t *testing.T) {
	c := endpoint(t, 0, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/models" || r.Method != http.MethodGet {
			w.WriteHeader(http.StatusNotFound)
		}
		fmt.Fprint(w, `{"object":"list","data":[{"id":"b"},{"id":"a"},{"id":"b"},{"id":""}]}`)
	})
	names, err := c.List(t.Context())
	if err != nil || strings.Join(names, " ") != "a b" {
		t.Fatalf("%v, %v", names, err)
	}
	c = endpoint(t, 0, bytesOf("<html>"))
	if _, err := c.List(t.Context()); model.ErrorOf(err).Class != model.BadRequest {
		t.Error(err)
	}
	c = endpoint(t, 0, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	if _, err := c.List(t.Context()); model.ErrorOf(err).Class != model.Fatal {
		t.Error(err)
	}
}

func TestNewRefuses(t *testing.T) {
	for _, c := range []Config{
		{BaseURL: ""}, {BaseURL: "localhost:11434"}, {BaseURL: "ftp://x/v1"}, {BaseURL: "http://"}, {BaseURL: "http://u:" + key + "@x/v1"},
		{BaseURL: "http://x/v1?key=" + key}, {BaseURL: "http://x/\x7f" + key}, {BaseURL: "http://x", Key: key + "\nX: y"},
	} {
		if _, err := New(c); err == nil || strings.Contains(err.Error(), key) {
			t.Errorf("%q: %v", c.BaseURL, err)
		}
	}
}
