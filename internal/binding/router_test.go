package binding

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"soma/internal/neuron"
	"soma/internal/pykernel"
	"soma/internal/pykernel/bundle"
)

type addArgs struct{ A, B int }

func sample() []Binding {
	return []Binding{
		{
			Name: "sums", Module: "soma_sums", Source: []byte("x = 1\n"), Rules: "- Sums are exact.\n",
			Beside: []bundle.Module{{Name: "soma_digits", Source: []byte("y = 1\n")}},
			Routes: []Route{
				Handle("sums.add", neuron.Idempotent, func(_ context.Context, _ Caller, a addArgs) (any, error) { return a.A + a.B, nil }),
				Handle("sums.who", neuron.Once, func(_ context.Context, c Caller, _ struct{}) (any, error) { return c.Cell + "/" + c.ID, nil }),
				{Method: "sums.refuse", Policy: neuron.Once, Call: func(context.Context, Caller, json.RawMessage) (any, error) {
					return nil, fmt.Errorf("cannot add: %w", &Refusal{Code: "no_sum", Text: "use another"})
				}},
				{Method: "sums.fail", Policy: neuron.Once, Call: func(context.Context, Caller, json.RawMessage) (any, error) {
					return nil, errors.New("cannot add: " + strings.Repeat("é", 4000))
				}},
				{Method: "sums.panic", Policy: neuron.Once, Call: func(context.Context, Caller, json.RawMessage) (any, error) { panic("at the door") }},
				{Method: "sums.huge", Policy: neuron.Once, Call: func(context.Context, Caller, json.RawMessage) (any, error) {
					return strings.Repeat("x", MaxReply), nil
				}},
				{Method: "sums.odd", Policy: neuron.Once, Call: func(context.Context, Caller, json.RawMessage) (any, error) { return make(chan int), nil }},
				{Method: "sums.nothing", Policy: neuron.Once, Call: func(context.Context, Caller, json.RawMessage) (any, error) { return nil, nil }},
				{Method: "sums.slow", Policy: neuron.Attach, Call: func(ctx context.Context, _ Caller, _ json.RawMessage) (any, error) {
					<-ctx.Done()
					return nil, fmt.Errorf("cannot wait: %w", ctx.Err())
				}},
			},
		},
		{Name: "words", Module: "soma_words", Source: []byte("z = 1\n"), Rules: "- Words are short.", Routes: []Route{
			Handle("words.one", neuron.Idempotent, func(context.Context, Caller, struct{}) (any, error) { return "one", nil }),
		}},
	}
}

func router(t *testing.T) *Router {
	t.Helper()
	r, err := NewRouter(sample())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// P-026: a call is routed by its namespace and answered with JSON or with a code and a message; what is no request is
// "invalid host request", and routes check their arguments.
func TestCalls(t *testing.T) {
	r := router(t)
	caller := Caller{Cell: "c", ID: "i"}
	for _, c := range []struct{ method, args, want string }{
		{"sums.add", `{"a":2,"b":3}`, `5`},
		{"words.one", `{}`, `"one"`},
		{"sums.who", `null`, `"c/i"`},
		{"sums.nothing", `{}`, `null`},
		{"", `{}`, `invalid: invalid host request`},
		{"sums.add", ``, `invalid: invalid host request`},
		{"sums.add", `{"a":`, `invalid: invalid host request`},
		{"sums.add", `{"a":"2"}`, `invalid: invalid arguments of sums.add: cannot unmarshal string into Go struct field addArgs.A of type int`},
		{"sums.add", `{"a":2,"c":3}`, `invalid: invalid arguments of sums.add: unknown field "c"`},
		{"sums.add", `[1]`, `invalid: invalid arguments of sums.add: cannot unmarshal array into Go value of type binding.addArgs`},
		{"sums", `{}`, `not_found: binding sums has no method "sums"`},
		{"sums.none", `{}`, `not_found: binding sums has no method "sums.none"`},
		{"sums.add.x", `{}`, `not_found: binding sums has no method "sums.add.x"`},
		{"other.add", `{}`, `not_found: no binding answers "other.add"`},
		{strings.Repeat("m", 101), `{}`, `invalid: a method has at most 100 characters`},
		{"sums.refuse", `{}`, `no_sum: use another`},
		{"sums.panic", `{}`, `internal: sums.panic panicked`},
		{"sums.odd", `{}`, `internal: the reply of sums.odd cannot be encoded`},
		{"sums.huge", `{}`, fmt.Sprintf(`too_large: the reply of sums.huge has %d bytes, more than %d: ask for less`, MaxReply+2, MaxReply)},
	} {
		value, failure := r.Call(t.Context(), caller, c.method, json.RawMessage(c.args))
		if got := answer(value, failure); got != c.want {
			t.Errorf("%s %s:\n got %s\nwant %s", c.method, c.args, got, c.want)
		}
	}
	huge := json.RawMessage(`"` + strings.Repeat("x", MaxArgs) + `"`)
	if _, failure := r.Call(t.Context(), caller, "sums.add", huge); failure == nil || failure.Code != "too_large" {
		t.Errorf("arguments over the bound: %v", failure)
	}
	_, failure := r.Call(t.Context(), caller, "sums.fail", json.RawMessage(`{}`))
	if failure == nil || failure.Code != "failed" || !strings.HasPrefix(failure.Message, "cannot add: éé") || len(failure.Message) > maxMessage {
		t.Errorf("a long error: %v", failure)
	}
}

func answer(value json.RawMessage, failure *pykernel.CallError) string {
	if failure != nil {
		return failure.Code + ": " + failure.Message
	}
	return string(value)
}

// P-026: a panic behind the door is told to the log.
func TestPanicIsLogged(t *testing.T) {
	r := router(t)
	var b bytes.Buffer
	r.Log = slog.New(slog.NewTextHandler(&b, nil))
	r.Call(t.Context(), Caller{ID: "i7"}, "sums.panic", json.RawMessage(`{}`))
	if text := b.String(); !strings.Contains(text, "at the door") || !strings.Contains(text, "call=i7") || !strings.Contains(text, "router_test.go") {
		t.Errorf("log %q", text)
	}
}

// P-026: no call waits without end.
func TestCallsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, failure := router(t).Call(t.Context(), Caller{}, "sums.slow", json.RawMessage(`{}`))
		if got := answer(nil, failure); got != "timeout: sums.slow was not done within 1m0s" {
			t.Error(got)
		}
	})
}

// P-020, P-027: what the daemon asks of the router about its bindings.
func TestContributions(t *testing.T) {
	r := router(t)
	for method, want := range map[string]neuron.Policy{
		"sums.add": neuron.Idempotent, "sums.who": neuron.Once, "sums.slow": neuron.Attach, "sums.gone": neuron.Once, "x": neuron.Once,
	} {
		if got := r.Policy(method); got != want {
			t.Errorf("policy of %s is %s, want %s", method, got, want)
		}
	}
	if got := strings.Join(r.Modules(), ","); got != "soma_sums,soma_words" {
		t.Errorf("modules %s", got)
	}
	var names []string
	for _, m := range r.Sources() {
		names = append(names, m.Name)
	}
	if got := strings.Join(names, ","); got != "soma_sums,soma_digits,soma_words" {
		t.Errorf("sources %s", got)
	}
	if got := r.Rules(); got != "- Sums are exact.\n\n- Words are short." {
		t.Errorf("rules %q", got)
	}
}

func TestBadBindings(t *testing.T) {
	call := func(context.Context, Caller, json.RawMessage) (any, error) { return nil, nil }
	for name, change := range map[string]func([]Binding) []Binding{
		"module twice":         func(b []Binding) []Binding { b[1].Module = "soma_digits"; return b },
		"module of the core":   func(b []Binding) []Binding { b[1].Module = "os"; return b },
		"no source":            func(b []Binding) []Binding { b[1].Source = nil; return b },
		"namespace of another": func(b []Binding) []Binding { b[1].Routes[0].Method = "sums.one"; return b },
		"method twice":         func(b []Binding) []Binding { b[0].Routes[1].Method = "sums.add"; return b },
		"no namespace":         func(b []Binding) []Binding { b[0].Routes[1].Method = "add"; return b },
		"no policy":            func(b []Binding) []Binding { b[1].Routes = []Route{{Method: "words.x", Call: call}}; return b },
		"no function":          func(b []Binding) []Binding { b[1].Routes = []Route{{Method: "words.x", Policy: neuron.Once}}; return b },
	} {
		if _, err := NewRouter(change(sample())); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}
