package script

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"soma/internal/agent/model"
	"soma/internal/agent/tool"
	"soma/message"
)

func mustParse(t *testing.T, text string) *Script {
	t.Helper()
	s, err := Parse("x.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func ask(messages ...message.Message) model.Request {
	return model.Request{Model: "x", Attempt: 1, Messages: messages, Facts: map[string]string{"DaemonPID": "4711"}}
}

func user(text string) message.Message { return message.Message{Role: message.User, Text: text} }

// collect plays one attempt and returns the answer with its tokens.
func collect(ctx context.Context, p model.Provider, r model.Request) (a model.Answer, toks []string, u message.Usage, err error) {
	s, err := p.Stream(ctx, r)
	if err != nil {
		return a, nil, u, err
	}
	defer s.Close()
	for {
		e, err := s.Next(ctx)
		if err == io.EOF {
			return a, toks, s.Usage(), nil
		}
		if err != nil {
			return a, toks, s.Usage(), err
		}
		if e.Kind == model.Token {
			toks = append(toks, e.Text)
		}
		a.Add(e)
	}
}

// converse plays a script to its end; run gives the result of each call. Every request meets a script just parsed.
func converse(t *testing.T, fresh func() *Script, history []message.Message, run func(message.Call) message.Message) []message.Message {
	t.Helper()
	for range 50 {
		a, _, _, err := collect(t.Context(), fresh(), ask(history...))
		if err != nil {
			t.Fatal(err)
		}
		history = append(history, a.Message)
		if len(a.Message.Calls) == 0 {
			return history
		}
		for _, c := range a.Message.Calls {
			history = append(history, run(c))
		}
	}
	t.Fatal("the script does not end")
	return nil
}

func cellResult(c message.Call, r tool.Result, status message.CallStatus) message.Message {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	return message.Message{Role: message.Tool, CallID: c.ID, Status: status, Text: tool.Render(r), Result: b}
}

const counting = `
name: counting
speed: 0
steps:
  - say: "You said {{.Input}}; the daemon is {{.DaemonPID}}."
    calls:
      - python: |
          print({{.Step}})
        timeout_ms: 5000
      - {tool: now, arguments: {zone: "U{{T}}C"}}
    usage: {input: 10, output: 3, cache_read: 2, cache_write: 1, reasoning: 1}
  - if: '{{not (allOK .Results)}}'
    say: "something failed: {{.Last.ErrorType}}"
  - if: '{{eq (field "n" (index .Results 0).Output) 7}}'
    say: "{{range lines .Last.Output}}<{{.}}>{{end}} {{(json (index .Results 0).Value).a}} {{len .Results}}"
  - if: '{{gt (len .Inputs) 1}}'
    say: "then {{index .Inputs 1}}"
`

// K-30: the step follows from the messages alone; templates see inputs, results and facts; conditions skip steps; after the
// last step comes an empty answer.
func TestPlay(t *testing.T) {
	fresh := func() *Script { return mustParse(t, counting) }
	a, toks, u, err := collect(t.Context(), fresh(), ask(user("hi there")))
	if err != nil {
		t.Fatal(err)
	}
	if a.Message.Text != "You said hi there; the daemon is 4711." || len(toks) != 8 || strings.Join(toks, "") != a.Message.Text {
		t.Errorf("%q in %q", a.Message.Text, toks)
	}
	if want := (message.Usage{Input: 10, Output: 3, CacheRead: 2, CacheWrite: 1, Reasoning: 1}); u != want || a.End.Usage != want {
		t.Errorf("usage %+v", u)
	}
	want := []message.Call{
		{ID: "call_1_1", Tool: "python", Arguments: json.RawMessage(`{"code":"print(1)\n","timeout_ms":5000}`)},
		{ID: "call_1_2", Tool: "now", Arguments: json.RawMessage(`{"zone":"U{{T}}C"}`)},
	}
	if !reflect.DeepEqual(a.Message.Calls, want) || a.End.Stop != model.StopCalls {
		t.Errorf("%+v", a.Message.Calls)
	}
	results := []tool.Result{
		{Status: "ok", Value: `{"a": [1, 2.5]}`, Output: tool.Output{Head: "x\n{\"n\": 7}\n", Size: 11}},
		{Status: "ok", Output: tool.Output{Head: "a\nb\n", Size: 4}},
	}
	next := 0
	history := converse(t, fresh, []message.Message{user("hi there")}, func(c message.Call) message.Message {
		next++
		return cellResult(c, results[next-1], message.OK)
	})
	if got := history[len(history)-1].Text; got != "<a><b> [1 2.5] 2" {
		t.Errorf("third step: %q", got)
	}
	a, _, _, err = collect(t.Context(), fresh(), ask(append(history, user("more"))...))
	if err != nil || a.Message.Text != "then more" {
		t.Errorf("fourth step: %q, %v", a.Message.Text, err)
	}
	a, _, u, err = collect(t.Context(), fresh(), ask(append(history, user("more"), a.Message, user("again"))...))
	if err != nil || a.Message.Text != "" || len(a.Message.Calls) != 0 || a.End == nil || u != (message.Usage{}) {
		t.Errorf("after the last step: %+v, %v", a, err)
	}
	// the failing branch
	history = converse(t, fresh, []message.Message{user("hi")}, func(c message.Call) message.Message {
		return cellResult(c, tool.Result{Status: "error", Error: &tool.ResultError{Type: "ValueError"}}, message.Error)
	})
	if got := history[len(history)-1].Text; got != "something failed: ValueError" {
		t.Errorf("second step: %q", got)
	}
}

// A script that does not fit what happened says where.
func TestMisfit(t *testing.T) {
	for text, want := range map[string]string{
		"steps:\n  - say: |\n      a\n      {{.Nope}}\n":                                                                  "x.yaml:4:",
		"steps:\n  - say: a\n    if: '{{.Last.OK}}'\n":                                                                    "x.yaml:3:",
		"steps:\n  - say: a\n    if: 'perhaps'\n":                                                                         `if gives "perhaps"`,
		"steps:\n  - say: '{{json \"{\"}}'\n":                                                                             "no JSON",
		"steps:\n  - say: '{{field \"a\" \"{}\"}}'\n":                                                                     `no field "a"`,
		"steps:\n  - say: '{{field \"a\" \"[]\"}}'\n":                                                                     "no JSON object",
		"steps:\n  - calls:\n      - python: |\n          1\n          {{.Nope}}\n":                                       "x.yaml:5:",
		"steps:\n  - say: '{{range $i := lines (printf \"%0999999d\" 1)}}{{printf \"%0999999d%0999999d\" 1 1}}{{end}}'\n": "longer than 1 MiB",
	} {
		_, _, _, err := collect(t.Context(), mustParse(t, text), ask(user("hi")))
		e := model.ErrorOf(err)
		if err == nil || e.Class != model.BadRequest || !strings.Contains(e.Words, want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// Bad files are refused with file and line.
func TestParseRefuses(t *testing.T) {
	step := "name: a\nsteps:\n  - say: x\n    "
	for text, want := range map[string]string{
		"":                                     "x.yaml: it is empty",
		"name: a":                              "x.yaml:1: steps:",
		"- a":                                  "x.yaml:1: want keys",
		"name: [a]\nsteps: []":                 "x.yaml:1: want a text",
		"name: a\nsteps: {}":                   "x.yaml:2: want a list",
		"name: a\n\tsteps":                     "x.yaml:2: ",
		"name: a\nspeed: fast\nsteps: []":      `x.yaml:2: "fast" is no number`,
		"name: a\nspeed: -1\nsteps: []":        `x.yaml:2: "-1" is no number`,
		"name: a\nspeed: NaN\nsteps: []":       `x.yaml:2: "NaN" is no number`,
		"name: a\nstep: []":                    `x.yaml:2: unknown key "step"`,
		"name: a\nname: b":                     "x.yaml:2: name stands twice",
		step + "sya: y":                        `x.yaml:4: unknown key "sya"`,
		step + "delay: soon":                   `x.yaml:4: "soon" is no duration`,
		step + "pace: -1s":                     `x.yaml:4: "-1s" is no duration`,
		step + "if: '{{if}}'":                  "x.yaml:4:",
		step + "if: '{{nope}}'":                "x.yaml:4: function \"nope\" not defined",
		step + "usage: {inputs: 1}":            `x.yaml:4: unknown key "inputs"`,
		step + "usage: {input: -1}":            `x.yaml:4: "-1" is no whole number`,
		step + "error: {class: odd}":           `x.yaml:4: class "odd"`,
		step + "error: {attempts: 1}":          "x.yaml:4: want a list",
		step + "calls: [{}]":                   "x.yaml:4: a call needs",
		step + "calls: [{python: 1, tool: x}]": "x.yaml:4: a call has either",
		step + "calls: [{tool: x}]":            "x.yaml:4: a call by tool needs arguments",
		step + "calls: [{tool: x, arguments: \"{}\", timeout_ms: 1}]": "x.yaml:4: a call by tool needs arguments",
		step + "calls: [{python: 1, timeout: 1}]":                     `x.yaml:4: unknown key "timeout"`,
		"name: a\nsteps:\n  - delay: 1s":                              "x.yaml:3: a step needs",
		"name: a\nsteps:\n  - say: |\n      x\n      {{.x":            "x.yaml:5:",
	} {
		_, err := Parse("x.yaml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), "cannot read the script: "+want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := Parse("x.yaml", make([]byte, MaxFile+1)); err == nil {
		t.Error("a file over the limit passes")
	}
}

func TestLoad(t *testing.T) {
	if s, err := Load("tour"); err != nil || s.Name() != "tour" {
		t.Fatalf("%v, %v", s, err)
	}
	if _, err := Load("torn"); err == nil || !strings.Contains(err.Error(), "the built-in scripts are: tour") {
		t.Errorf("%v", err)
	}
	if _, err := Load(t.TempDir()); err == nil || !strings.Contains(err.Error(), "cannot read the script") {
		t.Errorf("%v", err)
	}
}

const failing = `
speed: 0
steps:
  - say: one two three
    error:
      - {attempts: [1], class: retryable, status: 503, message: busy, retry_after: 2s, after_tokens: 2}
      - {attempts: [2, 3], class: fatal, message: no money}
`

// K-31, K-32: faults on chosen attempts, in the middle of the stream or before it; the next attempt begins anew.
func TestFaults(t *testing.T) {
	s := mustParse(t, failing)
	always := mustParse(t, "steps:\n  - error: {class: too_long}\n")
	for attempt := range 3 {
		r := ask(user("hi"))
		r.Attempt = attempt + 1
		if _, _, _, err := collect(t.Context(), always, r); model.ErrorOf(err).Class != model.TooLong {
			t.Errorf("attempt %d: %v", r.Attempt, err)
		}
	}
	for _, c := range []struct {
		attempt int
		tokens  int
		want    *model.Error
	}{
		{1, 2, &model.Error{Class: model.Retryable, Status: 503, Words: "busy", RetryAfter: 2 * time.Second}},
		{2, 0, &model.Error{Class: model.Fatal, Words: "no money"}},
		{3, 0, &model.Error{Class: model.Fatal, Words: "no money"}},
		{4, 3, nil},
	} {
		r := ask(user("hi"))
		r.Attempt = c.attempt
		a, toks, u, err := collect(t.Context(), s, r)
		var e *model.Error
		errors.As(err, &e)
		if len(toks) != c.tokens || !reflect.DeepEqual(e, c.want) || (a.End != nil) != (c.want == nil) {
			t.Errorf("attempt %d: %q, %+v", c.attempt, toks, err)
		}
		if !u.Estimated || (u.Output > 0) != (c.tokens > 0) {
			t.Errorf("attempt %d: usage %+v", c.attempt, u)
		}
	}
}

// Delays and pace pass as written, faster by speed, and not at all at speed 0; a cancelled stream ends at once.
func TestTime(t *testing.T) {
	const text = "pace: 100ms\nsteps:\n  - {delay: 1s, say: a b c d}\n  - {delay: 1s, pace: 10ms, say: a b c d}\n  - {delay: 1h, calls: [{python: '1'}]}\n"
	answer := message.Message{Role: message.Assistant, Text: "a"}
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			speed float64
			r     model.Request
			want  time.Duration
		}{
			{1, ask(user("x")), 1300 * time.Millisecond},
			{1, ask(user("x"), answer), 1030 * time.Millisecond},
			{2, ask(user("x")), 650 * time.Millisecond},
			{0, ask(user("x")), 0},
			{1, ask(user("x"), answer, answer), time.Hour},
		} {
			start := time.Now()
			if _, _, _, err := collect(t.Context(), mustParse(t, text).WithSpeed(c.speed), c.r); err != nil {
				t.Fatal(err)
			}
			if got := time.Since(start); got != c.want {
				t.Errorf("speed %v: %v, want %v", c.speed, got, c.want)
			}
		}
		why := errors.New("interrupted")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(why) })
		start := time.Now()
		_, _, _, err := collect(ctx, mustParse(t, text), ask(user("x"), answer, answer))
		if !errors.Is(err, why) || time.Since(start) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if _, err := mustParse(t, text).Stream(ctx, ask(user("x"))); !errors.Is(err, why) {
			t.Errorf("a cancelled request begins: %v", err)
		}
	})
}

// K-11: raw arguments reach the call as a model might write them.
func TestRawArguments(t *testing.T) {
	s := mustParse(t, "steps:\n  - calls:\n      - {tool: python, arguments: '{\"code\":'}\n      - {tool: python, arguments: ''}\n")
	a, _, _, err := collect(t.Context(), s, ask(user("x")))
	if err != nil {
		t.Fatal(err)
	}
	if c := a.Message.Calls; len(c) != 2 || c[0].Malformed == "" || string(c[0].Arguments) != "{}" || c[1].Malformed != "" {
		t.Errorf("%+v", c)
	}
}

// The document's example is a script, and does what the document says.
func TestDocument(t *testing.T) {
	doc, err := os.ReadFile("../../../../docs/formats/script.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(doc), "```yaml\n")
	example, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("no example")
	}
	fresh := func() *Script { return mustParse(t, example).WithSpeed(0) }
	outputs := []tool.Result{{Output: tool.Output{Head: "{\"n\": 7}\n", Size: 9}}, {Value: "7"}}
	history := converse(t, fresh, []message.Message{user("hi")}, func(c message.Call) message.Message {
		r := outputs[0]
		outputs = outputs[1:]
		return cellResult(c, r, message.OK)
	})
	if got := history[1].Text; got != "You asked: hi. I count to 1." {
		t.Error(got)
	}
	if got := history[len(history)-1].Text; got != "The cell printed 7, and n is 7." {
		t.Error(got)
	}
}
