package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"soma/hook"
	"soma/message"
	"soma/session"
)

// named makes a hook that writes its name into a list.
func named(list *[]string, name string, err error) *session.Hook {
	return session.NewHook(func(context.Context, session.HookArgs) error {
		*list = append(*list, name)
		return err
	})
}

// S-30: an unknown name is an error everywhere, and changes nothing.
func TestUnknownPoint(t *testing.T) {
	s := quiet(t, session.Options{})
	wants(t, s.EmitHook(t.Context(), session.HookArgs{Point: "x"}), hook.ErrUnknown) // without a bus too
	bus := s.Hooks()
	h := session.NewHook(func(context.Context, session.HookArgs) error { return nil })
	wants(t, bus.On("tool.Pre", h), hook.ErrUnknown)
	_, err := bus.Off("tool.Pre", h)
	wants(t, err, hook.ErrUnknown)
	_, err = bus.HandlersFor("tool.Pre")
	wants(t, err, hook.ErrUnknown)
	wants(t, bus.Emit(t.Context(), session.HookArgs{Point: "tool.Pre"}), hook.ErrUnknown)
	wants(t, bus.Emit(t.Context(), session.HookArgs{}), hook.ErrUnknown)
	wants(t, bus.SetDefaults("x", h), hook.ErrUnknown)
	wants(t, bus.Replace("x", h), hook.ErrUnknown)
	wants(t, s.EmitHook(t.Context(), session.HookArgs{Point: "x"}), hook.ErrUnknown)
	wants(t, bus.On(hook.ToolPre, nil), session.ErrInvalid)
	wants(t, bus.SetDefaults(hook.ToolPre, nil), session.ErrInvalid)
	wants(t, bus.Replace(hook.ToolPre, h, nil), session.ErrInvalid)
	if s.Observer().Len() != 0 {
		t.Error("an unknown point was recorded")
	}
}

// S-31, S-32, S-35: at every point, what errors, panics and stops do, and what is recorded.
func TestEmitHooks(t *testing.T) {
	for _, row := range hook.Table() {
		for name, bad := range map[string]*session.Hook{
			"none":  nil,
			"error": session.NewHook(func(context.Context, session.HookArgs) error { return errTest }),
			"panic": session.NewHook(func(context.Context, session.HookArgs) error { panic(errTest) }),
			"stop":  session.NewHook(func(context.Context, session.HookArgs) error { return hook.ErrStop }),
		} {
			s := quiet(t, session.Options{})
			var order []string
			ok(t, s.Hooks().On(row.Point, named(&order, "first", nil)))
			if bad != nil {
				ok(t, s.Hooks().On(row.Point, bad))
			}
			ok(t, s.Hooks().On(row.Point, named(&order, "last", nil)))
			var recordedBefore int
			err := s.Hooks().Emit(t.Context(), session.HookArgs{Point: row.Point, Path: "p", More: map[string]any{"k": 1}})
			recordedBefore = s.Observer().Len()
			fails := name == "error" || name == "panic"
			if blocked := row.Blocks && fails; errors.Is(err, errTest) != blocked || (err != nil) != blocked {
				t.Errorf("%s, %s: the error is %v", row.Point, name, err)
			}
			want := []string{"first", "last"}
			if name == "stop" || row.Blocks && fails {
				want = want[:1]
			}
			if !slices.Equal(order, want) {
				t.Errorf("%s, %s: order %q", row.Point, name, order)
			}
			signals := session.ByType[session.HookSignal](s.Observer())
			if row.Point == hook.MessageAdd {
				if recordedBefore != 0 {
					t.Errorf("%s was recorded", row.Point)
				}
				continue
			}
			if len(signals) != 1 || signals[0].Point != row.Point || signals[0].Args.Path != "p" || (signals[0].Denied != "") != (row.Blocks && fails) {
				t.Errorf("%s, %s: recorded %+v", row.Point, name, signals)
			}
		}
	}
}

// S-31: an objection is recorded before who emits hears of it; S-32: a record that fails is no matter.
func TestObjectionIsRecordedFirst(t *testing.T) {
	s := quiet(t, session.Options{})
	ok(t, s.Hooks().On(hook.ToolPre, session.NewHook(func(context.Context, session.HookArgs) error { return errTest })))
	seen := 0
	ok(t, s.Observer().Observe(session.HandlerOf(func(_ context.Context, h session.HookSignal, _ *session.Observer) (any, error) {
		seen++
		if h.Denied != "tool.pre: of the test" {
			t.Errorf("recorded as %+v", h)
		}
		return nil, errors.New("the record fails")
	}), session.Type[session.HookSignal]()))
	err := s.Hooks().Emit(t.Context(), session.HookArgs{Point: hook.ToolPre})
	if seen != 1 || !errors.Is(err, errTest) || strings.Contains(err.Error(), "record") {
		t.Errorf("recorded %d times, the error is %v", seen, err)
	}
}

// S-31: what is isolated is logged.
func TestFailingHookIsLogged(t *testing.T) {
	var log strings.Builder
	s := quiet(t, session.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	ok(t, s.Hooks().On(hook.SessionEnd, session.NewHook(func(context.Context, session.HookArgs) error { return errTest })))
	ok(t, s.EmitHook(t.Context(), session.HookArgs{Point: hook.SessionEnd}))
	if !strings.Contains(log.String(), "session.end") || !strings.Contains(log.String(), "of the test") {
		t.Errorf("logged %q", log.String())
	}
}

// S-33, S-36: the bus is made when it is asked for first, reaches members of before and after, and says nothing by that.
func TestBusIsMadeLate(t *testing.T) {
	s := quiet(t, session.Options{})
	early := s.Default()
	ok(t, s.EmitHook(t.Context(), session.HookArgs{Point: hook.SessionStart}))
	if early.Hooks() != nil || s.Observer().Len() != 0 {
		t.Error("there is a bus that nobody has asked for")
	}
	bus := s.Hooks()
	late, err := s.NewBranch(session.BranchOptions{System: "sys"})
	ok(t, err)
	split, err := s.Split(early.ID())
	ok(t, err)
	if early.Hooks() != bus || late.Hooks() != bus || split.Hooks() != bus || s.Hooks() != bus {
		t.Error("another bus")
	}
	if s.Observer().Len() != 0 {
		t.Errorf("it has emitted %v", s.Observer().History())
	}
	// S-36: a message that joins without the callback is no message.add.
	var order []string
	ok(t, bus.On(hook.MessageAdd, named(&order, "add", nil)))
	_, err = late.AddContext(t.Context(), session.Message{Role: session.Instruction})
	ok(t, err)
	if len(order) != 0 {
		t.Error("message.add came without a persistence callback")
	}
}

// S-34, S-35
func TestDefaults(t *testing.T) {
	bus := quiet(t, session.Options{}).Hooks()
	for _, row := range hook.Table() {
		if hs, err := bus.HandlersFor(row.Point); err != nil || len(hs) != 0 {
			t.Errorf("%s begins with %d handlers, %v", row.Point, len(hs), err)
		}
	}
	var order []string
	hooks := map[string]*session.Hook{}
	for _, name := range []string{"d1", "d2", "o1", "r1"} {
		hooks[name] = named(&order, name, nil)
	}
	check := func(want ...string) {
		t.Helper()
		order = nil
		ok(t, bus.Emit(t.Context(), session.HookArgs{Point: hook.APIPreCall}))
		if !slices.Equal(order, want) {
			t.Errorf("order %q, want %q", order, want)
		}
		if hs, err := bus.HandlersFor(hook.APIPreCall); err != nil || len(hs) != len(want) {
			t.Errorf("%d handlers, %v", len(hs), err)
		}
	}
	ok(t, bus.On(hook.APIPreCall, hooks["o1"]))
	ok(t, bus.SetDefaults(hook.APIPreCall, hooks["d1"], hooks["d2"]))
	check("d1", "d2", "o1")
	ok(t, bus.Replace(hook.APIPreCall, hooks["r1"]))
	check("r1", "o1")
	ok(t, bus.SetDefaults(hook.APIPreCall, hooks["d1"]))
	check("r1", "o1")
	ok(t, bus.Replace(hook.APIPreCall))
	check("o1")
	ok(t, bus.On(hook.APIPreCall, hooks["o1"]))
	check("o1", "o1")
	n, err := bus.Off(hook.APIPreCall, hooks["o1"])
	ok(t, err)
	check()
	if n != 2 {
		t.Errorf("%d were taken out", n)
	}
	n, err = bus.Off(hook.APIPostCall, hooks["o1"])
	if n != 0 || err != nil {
		t.Errorf("%d were taken out, %v", n, err)
	}
}

// S-31: handlers run over a copy of the list, and may change it, and emit.
func TestHooksReenter(t *testing.T) {
	bus := quiet(t, session.Options{}).Hooks()
	var order []string
	late := named(&order, "late", nil)
	var first *session.Hook
	first = session.NewHook(func(ctx context.Context, a session.HookArgs) error {
		order = append(order, "first")
		n, err := bus.Off(a.Point, first)
		if n != 1 {
			t.Errorf("%d were taken out", n)
		}
		return errors.Join(err, bus.On(a.Point, late), bus.Emit(ctx, a))
	})
	ok(t, bus.On(hook.ToolPre, first))
	ok(t, bus.On(hook.ToolPre, named(&order, "second", nil)))
	ok(t, bus.Emit(t.Context(), session.HookArgs{Point: hook.ToolPre}))
	if want := []string{"first", "second", "late", "second"}; !slices.Equal(order, want) {
		t.Errorf("order %q", order)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			h := session.NewHook(func(context.Context, session.HookArgs) error { return nil })
			for range 100 {
				if bus.On(hook.ToolPost, h) != nil || bus.Emit(t.Context(), session.HookArgs{Point: hook.ToolPost}) != nil {
					t.Error("failed")
				}
				if n, _ := bus.Off(hook.ToolPost, h); n != 1 {
					t.Errorf("%d were taken out", n)
				}
			}
		})
	}
	wg.Wait()
}

// S-36: one writer per message, found by the branch, in the place of the defaults; the system message is handed over.
func TestPersistMessages(t *testing.T) {
	s := quiet(t, session.Options{})
	bus := s.Hooks()
	var order []string
	ok(t, bus.SetDefaults(hook.MessageAdd, named(&order, "default", nil)))
	ok(t, bus.On(hook.MessageAdd, named(&order, "other", errors.New("not this one"))))
	writer := func(name string, err error) session.Persist {
		return func(_ context.Context, b *session.Branch, m session.Message) error {
			order = append(order, name+":"+m.Text)
			return err
		}
	}
	a, err := s.NewBranch(session.BranchOptions{System: "sys", Messages: []session.Message{{Role: session.Instruction, Text: "early"}}})
	ok(t, err)
	b, err := s.NewBranch(session.BranchOptions{})
	ok(t, err)
	ok(t, bus.PersistMessages(t.Context(), a, writer("a", nil)))
	ok(t, bus.PersistMessages(t.Context(), b, writer("b", errTest)))
	if want := []string{"a:sys", "other"}; !slices.Equal(order, want) {
		t.Errorf("order %q", order)
	}
	_, err = a.Add(session.Message{Role: session.Instruction})
	wants(t, err, session.ErrNeedsContext)
	order = nil
	_, err = a.AddContext(t.Context(), session.Message{Role: session.Instruction, Text: "1"})
	ok(t, err)
	_, err = b.AddContext(t.Context(), session.Message{Role: session.Instruction, Text: "2"})
	wants(t, err, errTest)
	if strings.Contains(err.Error(), "not this one") || b.Len() != 1 {
		t.Errorf("the error is %v", err)
	}
	if want := []string{"a:1", "other", "b:2", "other"}; !slices.Equal(order, want) {
		t.Errorf("order %q", order)
	}
	if n := len(session.ByType[session.HookSignal](s.Observer())); n != 0 { // S-32
		t.Errorf("%d signals", n)
	}
	if n := len(session.ByType[session.MessageAdded](s.Observer())); n != 2 {
		t.Errorf("%d messages were told", n)
	}

	// Nobody else's handlers take the writer's place.
	order = nil
	ok(t, bus.Replace(hook.MessageAdd, named(&order, "in place", nil)))
	ok(t, bus.SetDefaults(hook.MessageAdd, named(&order, "default", nil)))
	_, err = a.AddContext(t.Context(), session.Message{Role: session.Instruction, Text: "5"})
	ok(t, err)
	if want := []string{"a:5", "in place", "other"}; !slices.Equal(order, want) {
		t.Errorf("order %q", order)
	}
	ok(t, bus.Replace(hook.MessageAdd))

	// Again, and on another bus: still one writer.
	ok(t, bus.PersistMessages(t.Context(), b, writer("c", nil)))
	other := quiet(t, session.Options{}).Hooks()
	ok(t, other.PersistMessages(t.Context(), a, writer("d", nil)))
	order = nil
	for _, branch := range []*session.Branch{a, b} {
		_, err = branch.AddContext(t.Context(), session.Message{Role: session.Instruction, Text: "3"})
		ok(t, err)
	}
	if want := []string{"d:3", "c:3", "other"}; !slices.Equal(order, want) {
		t.Errorf("order %q", order)
	}
	// By hand it goes to the writer too; without a branch to nobody.
	order = nil
	ok(t, bus.Emit(t.Context(), session.HookArgs{Point: hook.MessageAdd, Branch: b, Message: &session.Message{Text: "4"}}))
	ok(t, bus.Emit(t.Context(), session.HookArgs{Point: hook.MessageAdd, Branch: a, Message: &session.Message{Text: "4"}}))
	ok(t, bus.Emit(t.Context(), session.HookArgs{Point: hook.MessageAdd}))
	if want := []string{"c:4", "other", "other", "other"}; !slices.Equal(order, want) {
		t.Errorf("order %q", order)
	}
	// S-05: the writer goes with the session.
	for _, branch := range []*session.Branch{a, b} {
		_, err = s.Remove(branch.ID())
		ok(t, err)
		_, err = branch.Add(session.Message{Role: session.Instruction})
		ok(t, err)
	}
	order = nil
	ok(t, other.Emit(t.Context(), session.HookArgs{Point: hook.MessageAdd, Branch: a, Message: &session.Message{Text: "5"}}))
	if len(order) != 0 {
		t.Errorf("a removed branch is written: %q", order)
	}
	wants(t, bus.PersistMessages(t.Context(), nil, writer("x", nil)), session.ErrInvalid)
	wants(t, bus.PersistMessages(t.Context(), b, nil), session.ErrInvalid)
}

// S-32: what the record says of the arguments has a JSON form.
func TestHookArgsAsJSON(t *testing.T) {
	b := free(t, session.BranchOptions{})
	m := say(t, b, session.Instruction, "x")
	text, err := json.Marshal(session.HookArgs{Point: hook.ToolPre, Branch: b, Message: &m, Tool: "t", Arguments: jsonRaw(`{"a":`), Err: errTest})
	ok(t, err)
	if want := `{"branch":"` + b.ID().String() + `","message":"` + m.ID.String() + `","tool":"t","error":"of the test"}`; string(text) != want {
		t.Errorf("got %s", text)
	}
	if _, err := b.Act(t.Context(), message.Call{Tool: "x"}); err != nil {
		t.Error(err)
	}
}
