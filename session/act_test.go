package session_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"soma/hook"
	"soma/message"
	"soma/session"
)

// echo is a model that calls the tool "count" once and then says how often it was asked.
type echo struct{ fail error }

func (echo) Name() string { return "echo" }

func (e echo) Answer(_ context.Context, r session.Request) (message.Message, message.Usage, error) {
	if e.fail != nil {
		return message.Message{}, message.Usage{}, e.fail
	}
	last := r.Messages[len(r.Messages)-1]
	if last.Role == message.User {
		return message.Message{Text: "let me count", Calls: []message.Call{{ID: "1", Tool: "count"}}}, message.Usage{Input: 3}, nil
	}
	r.Chunk("it is ")
	r.Chunk(last.Text)
	return message.Message{Text: "it is " + last.Text}, message.Usage{}, nil
}

// pointsOf hooks into every point and gathers their names.
func pointsOf(t *testing.T, s *session.Session) *[]string {
	t.Helper()
	var seen []string
	for _, row := range hook.Table() {
		ok(t, s.Hooks().On(row.Point, session.NewHook(func(_ context.Context, a session.HookArgs) error {
			seen = append(seen, string(a.Point))
			return nil
		})))
	}
	return &seen
}

// S-13
func TestAct(t *testing.T) {
	for name, c := range map[string]struct {
		gate    session.Gate
		pre     error
		tool    func(context.Context, jsonRaw) (any, error)
		ran     bool
		status  message.CallStatus
		result  string
		points  []string
		denials int
	}{
		"works": {tool: func(context.Context, jsonRaw) (any, error) { return 7, nil }, ran: true, status: message.OK, result: "7",
			points: []string{"tool.pre", "tool.post"}},
		"fails": {tool: func(context.Context, jsonRaw) (any, error) { return nil, errTest }, ran: true, status: message.Error,
			result: `{"error":"of the test"}`, points: []string{"tool.pre", "tool.error"}},
		"panics": {tool: func(context.Context, jsonRaw) (any, error) { panic("no") }, ran: true, status: message.Error,
			result: `{"error":"the tool panicked: no"}`, points: []string{"tool.pre", "tool.error"}},
		"has no JSON form": {tool: func(context.Context, jsonRaw) (any, error) { return func() {}, nil }, ran: true, status: message.Error,
			result: `{"error":"the result has no JSON form: json: unsupported type: func()"}`, points: []string{"tool.pre", "tool.error"}},
		"is denied": {gate: func(context.Context, any) (bool, error) { return false, nil }, status: message.Denied,
			result: `{"error":"denied by the gate"}`, denials: 1},
		"is kept back": {pre: errTest, status: message.Denied, result: `{"error":"denied: tool.pre: of the test"}`,
			points: []string{"tool.pre", "tool.error"}},
		"is not kept back by a stop": {pre: hook.ErrStop, tool: func(context.Context, jsonRaw) (any, error) { return "", nil }, ran: true,
			status: message.OK, result: `""`, points: []string{"tool.pre", "tool.post"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := quiet(t, session.Options{})
			b := s.Default()
			ran := false
			ok(t, b.SetTool(session.Tool{Name: "t", Run: func(ctx context.Context, arguments jsonRaw) (any, error) {
				ran = true
				if string(arguments) != "{}" {
					t.Errorf("arguments are %s", arguments)
				}
				return c.tool(ctx, arguments)
			}}))
			points := pointsOf(t, s)
			ok(t, s.Hooks().On(hook.ToolPre, session.NewHook(func(context.Context, session.HookArgs) error { return c.pre })))
			if c.gate != nil {
				s.Observer().SetGate(func(ctx context.Context, payload any) (bool, error) {
					if _, ok := payload.(session.Action); !ok {
						return true, nil
					}
					return c.gate(ctx, payload)
				})
			}
			response, err := b.Act(t.Context(), message.Call{ID: "1", Tool: "t"})
			ok(t, err)
			if ran != c.ran || response.Status != c.status || string(response.Result) != c.result {
				t.Errorf("ran %v, status %s, result %s", ran, response.Status, response.Result)
			}
			var tools []string
			for _, p := range *points {
				if strings.HasPrefix(p, "tool.") {
					tools = append(tools, p)
				}
			}
			if !slices.Equal(tools, c.points) {
				t.Errorf("points %v, want %v", tools, c.points)
			}
			got := b.Messages()
			if len(got) != 2 || got[0].Role != session.ActionRequest || got[0].Call.Tool != "t" || got[1].ID != response.ID || got[1].Request != got[0].ID {
				t.Errorf("messages are %+v", got)
			}
			if n := len(session.ByType[session.GateDenied](s.Observer())); n != c.denials {
				t.Errorf("%d denials", n)
			}
			if _, err := b.Conversation(); err != nil {
				t.Error(err)
			}
		})
	}
}

// unwritable is a result whose JSON form panics.
type unwritable struct{}

func (unwritable) MarshalJSON() ([]byte, error) { panic("no form") }

// S-13: a tool that is not there, arguments that are none, a context that has ended: all into the history.
func TestActFailures(t *testing.T) {
	b := free(t, session.BranchOptions{})
	ok(t, b.SetTool(session.Tool{Name: "t", Run: func(ctx context.Context, _ jsonRaw) (any, error) { return nil, context.Cause(ctx) }}))
	ok(t, b.SetTool(session.Tool{Name: "unwritable", Run: func(context.Context, jsonRaw) (any, error) { return unwritable{}, nil }}))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	for name, c := range map[string]struct {
		ctx    context.Context
		call   message.Call
		status message.CallStatus
	}{
		"unknown": {t.Context(), message.Call{Tool: "who"}, message.Error}, "malformed": {t.Context(), message.Call{Tool: "t", Malformed: "at 3"}, message.Error},
		"panics as JSON": {t.Context(), message.Call{Tool: "unwritable"}, message.Error},
		"cancelled":      {ended, message.Call{Tool: "t"}, message.Cancelled}, "late": {late, message.Call{Tool: "t"}, message.TimedOut},
	} {
		before := b.Len()
		if m, err := b.Act(c.ctx, c.call); err != nil || m.Status != c.status || b.Len() != before+2 {
			t.Errorf("%s: %+v, %v, %d messages", name, m, err, b.Len()-before)
		}
	}
	b.OnMessage(func(ctx context.Context, _ *session.Branch, _ session.Message) error {
		return errors.Join(errTest, ctx.Err())
	})
	m, err := b.Act(ended, message.Call{Tool: "t"})
	wants(t, err, errTest)
	if m.ID.IsZero() || errors.Is(err, context.Canceled) {
		t.Error("what has happened is not written because the context has ended")
	}
	before, logged := b.Len(), len(b.Log())
	_, err = b.Act(t.Context(), message.Call{})
	wants(t, err, session.ErrInvalid)
	if b.Len() != before || len(b.Log()) != logged {
		t.Errorf("a call of no tool is done: %d messages, log %v", b.Len()-before, b.Log())
	}
}

// S-14: work that ends its goroutine has failed; a panic in an inner run is an error for the outer one.
func TestRunThatBreaks(t *testing.T) {
	s := quiet(t, session.Options{})
	b := s.Default()
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = b.Run(t.Context(), "leaves", func(context.Context) (any, error) {
			runtime.Goexit()
			return nil, nil
		})
	})
	wg.Wait()
	if failed := session.ByType[session.RunFailed](s.Observer()); len(failed) != 1 || len(session.ByType[session.RunEnd](s.Observer())) != 0 {
		t.Errorf("%d runs have failed", len(failed))
	}
	_, err := b.Run(t.Context(), "outer", func(ctx context.Context) (any, error) {
		_, err := b.Run(ctx, "inner", func(context.Context) (any, error) { panic("broken") })
		wants(t, err, session.ErrPanic)
		return nil, nil
	})
	ok(t, err)
}

// S-14
func TestRunSignals(t *testing.T) {
	s := quiet(t, session.Options{User: "ann"})
	b := s.Default()
	kinds := func() (out []string) {
		for _, e := range s.Observer().History() {
			out = append(out, e.Kind()+":"+fmt.Sprint(session.OpOf(session.WithOp(t.Context(), e.Signal.Meta().Op)) != ""))
		}
		return out
	}
	ended, cancel := context.WithCancel(t.Context())
	ends := 0
	for _, key := range []session.Key{session.Type[session.RunEnd](), session.Type[session.RunFailed]()} {
		ok(t, s.Observer().Observe(session.NewHandler(func(ctx context.Context, _ any, _ *session.Observer) (any, error) {
			ends++
			return nil, ctx.Err() // who is told of the end of a cancelled run can still work
		}), key))
	}
	after := gather(t, s.Observer(), session.Where(anything))
	seen := 0
	for name, work := range map[string]func(context.Context) (any, error){
		"well":   func(context.Context) (any, error) { return 1, nil },
		"fails":  func(context.Context) (any, error) { return 1, errTest },
		"panics": func(context.Context) (any, error) { panic("no") },
		"nested": func(ctx context.Context) (any, error) {
			return b.Run(ctx, "inner", func(ctx context.Context) (any, error) {
				return b.Run(ctx, "innermost", func(context.Context) (any, error) { return 1, nil })
			})
		},
		"nested fails": func(ctx context.Context) (any, error) {
			return b.Run(ctx, "inner", func(context.Context) (any, error) { return nil, errTest })
		},
		"cancelled": func(ctx context.Context) (any, error) { cancel(); <-ctx.Done(); return nil, context.Cause(ctx) },
	} {
		ctx := t.Context()
		if name == "cancelled" {
			ctx = ended
		}
		_, err := b.Run(ctx, name, work)
		end := "RunEnd:true"
		if failed := strings.HasSuffix(name, "fails") || name == "panics" || name == "cancelled"; failed {
			end = "RunFailed:true"
		}
		if (err != nil) != (end == "RunFailed:true") {
			t.Errorf("%s: %v", name, err)
		}
		if got := kinds()[seen:]; !slices.Equal(got, []string{"RunStart:true", end}) {
			t.Errorf("%s emits %v", name, got)
		}
		seen += 2
	}
	if starts := session.ByType[session.RunStart](s.Observer()); starts[0].Branch != b.ID() || starts[0].User != "ann" {
		t.Errorf("the start is %+v", starts[0])
	}
	if ends != 6 || len(*after) != 12 {
		t.Errorf("%d ends, %d signals were told to all", ends, len(*after))
	}
	// A run of another branch within is a run of its own.
	other, err := s.NewBranch(session.BranchOptions{})
	ok(t, err)
	_, err = b.Run(t.Context(), "outer", func(ctx context.Context) (any, error) {
		return other.Run(ctx, "other", func(context.Context) (any, error) { return nil, nil })
	})
	ok(t, err)
	if got := kinds()[seen:]; len(got) != 4 {
		t.Errorf("two branches emit %v", got)
	}
}

// ending is a model during whose answer the context ends.
type ending struct{ cancel func() }

func (ending) Name() string { return "ending" }

func (e ending) Answer(context.Context, session.Request) (message.Message, message.Usage, error) {
	e.cancel()
	return message.Message{Role: message.Assistant, Text: "said"}, message.Usage{}, nil
}

// S-11, S-14: what the model has said is written, and the end of the run told, under a context that still lives.
func TestAnswerOfAnEndedContext(t *testing.T) {
	s := quiet(t, session.Options{})
	b := s.Default()
	ctx, cancel := context.WithCancel(t.Context())
	b.SetModel(ending{cancel})
	b.OnMessage(func(ctx context.Context, _ *session.Branch, _ session.Message) error { return ctx.Err() })
	told := 0
	ok(t, s.Observer().Observe(session.HandlerOf(func(ctx context.Context, _ session.RunEnd, _ *session.Observer) (any, error) {
		told++
		return nil, ctx.Err()
	}), session.Type[session.RunEnd]()))
	after := gather(t, s.Observer(), session.Type[session.RunEnd]())
	answer, err := b.Instruct(ctx, session.Input{Text: "go on"})
	ok(t, err)
	if answer.Text != "said" || told != 1 || len(*after) != 1 {
		t.Errorf("the answer is %+v, %d and %d were told of the end", answer, told, len(*after))
	}
}

// S-14, S-30: an instruction from end to end, with all points in their order.
func TestInstruct(t *testing.T) {
	s := quiet(t, session.Options{User: "ann"})
	b := s.Default()
	b.SetModel(echo{})
	ok(t, b.SetTool(session.Tool{Name: "count", Run: func(context.Context, jsonRaw) (any, error) { return "seven", nil }}))
	points := pointsOf(t, s)
	answer, err := b.Instruct(t.Context(), session.Input{Text: "how many?", Sender: "ann"})
	ok(t, err)
	if answer.Text != "it is seven" || answer.Recipient != "ann" {
		t.Errorf("the answer is %+v", answer)
	}
	want := []string{"prompt.submit", "api.pre_call", "api.post_call", "tool.pre", "tool.post", "api.pre_call", "api.stream_chunk", "api.stream_chunk", "api.post_call"}
	if !slices.Equal(*points, want) {
		t.Errorf("points are %v", *points)
	}
	if got := texts(b.Messages()); !slices.Equal(got, []string{"how many?", "let me count", "", "seven", "it is seven"}) {
		t.Errorf("messages are %q", got)
	}
	if n := len(session.ByType[session.RunStart](s.Observer())); n != 1 {
		t.Errorf("%d runs", n)
	}
	if n := len(session.ByType[session.Message](s.Observer())); n != 5 {
		t.Errorf("%d messages were told", n)
	}

	// S-31: prompt.submit refuses before anything is written.
	refuse := session.NewHook(func(context.Context, session.HookArgs) error { return errTest })
	ok(t, s.Hooks().On(hook.PromptSubmit, refuse))
	_, err = b.Instruct(t.Context(), session.Input{Text: "no"})
	wants(t, err, errTest)
	if b.Len() != 5 || len(session.ByType[session.RunFailed](s.Observer())) != 1 {
		t.Error("a refused input is written, or its run has not failed")
	}
	_, err = s.Hooks().Off(hook.PromptSubmit, refuse)
	ok(t, err)

	_, err = b.Instruct(t.Context(), session.Input{Text: "x", Model: "who"})
	wants(t, err, session.ErrNoModel)
	b.SetModel(echo{fail: errTest})
	if len(b.Models()) != 1 {
		t.Error("two models of one name")
	}
	_, err = b.Instruct(t.Context(), session.Input{Text: "x"})
	wants(t, err, errTest)
	b.SetModel(endless{})
	_, err = b.Instruct(t.Context(), session.Input{Text: "x"})
	wants(t, err, session.ErrRounds)
	b.SetModel(panics{})
	_, err = b.Instruct(t.Context(), session.Input{Text: "x"})
	wants(t, err, session.ErrPanic)
	if got, err := b.Instruct(t.Context(), session.Input{Text: "x", Model: "endless"}); !errors.Is(err, session.ErrRounds) {
		t.Errorf("a model by name: %v, %v", got, err)
	}
}

type endless struct{}

func (endless) Name() string { return "endless" }
func (endless) Answer(context.Context, session.Request) (message.Message, message.Usage, error) {
	return message.Message{Calls: []message.Call{{ID: "1", Tool: "count"}}}, message.Usage{}, nil
}

type panics struct{}

func (panics) Name() string { return "panics" }
func (panics) Answer(context.Context, session.Request) (message.Message, message.Usage, error) {
	panic("no")
}

// S-19: the person is the session's user or the one whom the input names, never what the branch is marked with.
func TestPerson(t *testing.T) {
	s := quiet(t, session.Options{User: "ann"})
	b := s.Default()
	b.SetModel(echo{})
	ok(t, b.SetTool(session.Tool{Name: "count", Run: func(context.Context, jsonRaw) (any, error) { return 1, nil }}))
	b.SetUser("mark")
	var people, asked []string
	ok(t, s.Hooks().On(hook.ToolPre, session.NewHook(func(_ context.Context, a session.HookArgs) error {
		people = append(people, a.User)
		return nil
	})))
	s.Observer().SetGate(func(_ context.Context, payload any) (bool, error) {
		if a, ok := payload.(session.Action); ok {
			asked = append(asked, a.User)
		}
		return true, nil
	})
	for _, user := range []string{"", "bob"} {
		_, err := b.Instruct(t.Context(), session.Input{Text: "x", User: user})
		ok(t, err)
	}
	want := []string{"ann", "bob"}
	if !slices.Equal(people, want) || !slices.Equal(asked, want) {
		t.Errorf("hooks saw %q, the gate %q", people, asked)
	}
	for i, start := range session.ByType[session.RunStart](s.Observer()) {
		if start.User != want[i] {
			t.Errorf("run %d was for %q", i, start.User)
		}
	}
}
