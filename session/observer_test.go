package session_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"soma/session"
)

type cat struct{ name string }

// purr is a signal of the test.
type purr struct {
	session.Envelope
	loud bool
}

func observer(o session.ObserverOptions) *session.Observer {
	o.Log = slog.New(slog.DiscardHandler)
	return session.NewObserver(o)
}

// gather observes and writes what it gets into a list.
func gather(t *testing.T, o *session.Observer, keys ...session.Key) *[]any {
	t.Helper()
	var got []any
	ok(t, o.Observe(session.NewHandler(func(_ context.Context, v any, _ *session.Observer) (any, error) {
		got = append(got, v)
		return nil, nil
	}), keys...))
	return &got
}

func payloads(events []session.Event) (out []any) {
	for _, e := range events {
		out = append(out, e.Payload)
	}
	return out
}

func anything(any) bool { return true }

// S-20: the order, and who sees what.
func TestEmitOrder(t *testing.T) {
	o := observer(session.ObserverOptions{})
	var order []string
	o.SetGate(func(_ context.Context, payload any) (bool, error) {
		order = append(order, fmt.Sprintf("gate %v %d", payload, o.Len()))
		return true, nil
	})
	ok(t, o.Route(func(payload any) bool {
		order = append(order, fmt.Sprintf("route %v %d", payload, o.Len()))
		return true
	}, "s"))
	ok(t, o.Observe(session.NewHandler(func(_ context.Context, v any, with *session.Observer) (any, error) {
		order = append(order, fmt.Sprintf("handler %v %d %v", v, len(with.Stream("s")), with == o))
		return "done", nil
	}), session.Where(func(payload any) bool { order = append(order, fmt.Sprintf("filter %v", payload)); return true })))
	for _, event := range []any{5, purr{Envelope: session.Envelope{Data: 5, Role: "r"}}} {
		order = nil
		results, err := o.Emit(t.Context(), event)
		ok(t, err)
		n := o.Len()
		want := []string{fmt.Sprintf("gate 5 %d", n-1), fmt.Sprintf("route 5 %d", n), "filter 5", fmt.Sprintf("handler 5 %d true", n)}
		if !slices.Equal(order, want) || !slices.Equal(results, []any{"done"}) {
			t.Errorf("order %q, results %v", order, results)
		}
	}
	events := o.History()
	if _, ok := events[0].Signal.(session.Wrapped); !ok || events[0].Payload != 5 || events[0].Signal.Meta().Data != 5 || events[0].Kind() != "int" {
		t.Errorf("a value was stored as %+v", events[0])
	}
	if s, ok := events[1].Signal.(purr); !ok || s.Role != "r" || events[1].Kind() != "purr" || events[1].ID.IsZero() || events[1].ID == events[0].ID {
		t.Errorf("a signal was stored as %+v", events[1])
	}
	// Signals without a payload are their own; a nil pointer to one and nil are values like others.
	for _, event := range []any{purr{loud: true}, (*purr)(nil), nil} {
		_, err := o.Emit(t.Context(), event)
		ok(t, err)
		if e := o.History(); e[len(e)-1].Payload != event {
			t.Errorf("the payload of %v is %v", event, e[len(e)-1].Payload)
		}
	}
	if e := o.History(); e[2].Seq != 3 || e[4].Kind() != "nil" || e[3].Kind() != "purr" {
		t.Errorf("events are %+v", e[2:])
	}
}

// S-21: an error, a panic and a no are the same.
func TestGateDenies(t *testing.T) {
	for name, gate := range map[string]session.Gate{
		"no":    func(context.Context, any) (bool, error) { return false, nil },
		"error": func(context.Context, any) (bool, error) { return true, errTest },
		"panic": func(context.Context, any) (bool, error) { panic("no") },
	} {
		o := observer(session.ObserverOptions{})
		ok(t, o.Route(anything, "s"))
		got := gather(t, o, session.Where(anything))
		o.SetGate(gate)
		if results, err := o.Emit(t.Context(), 1); results != nil || err != nil {
			t.Errorf("%s: %v, %v", name, results, err)
		}
		if h := o.History(); len(h) != 1 || !h[0].Denied || len(*got) != 0 || o.Stream("s") != nil {
			t.Errorf("%s: history %v, told %v", name, h, *got)
		}
		if n := len(session.ByType[int](o)); n != 1 { // S-28
			t.Errorf("%s: %d found by type", name, n)
		}
		// S-29: one gate at a time.
		o.SetGate(func(context.Context, any) (bool, error) { return true, nil })
		_, err := o.Emit(t.Context(), 2)
		ok(t, err)
		o.SetGate(gate)
		o.ClearGate()
		_, err = o.Emit(t.Context(), 3)
		ok(t, err)
		o.SetGate(gate)
		o.SetGate(nil)
		_, err = o.Emit(t.Context(), 4)
		ok(t, err)
		if !slices.Equal(*got, []any{2, 3, 4}) {
			t.Errorf("%s: told %v", name, *got)
		}
	}
}

// S-22
func TestRoutes(t *testing.T) {
	o := observer(session.ObserverOptions{})
	if o.Stream("odd") != nil {
		t.Error("a stream that nobody fills is not empty")
	}
	odd := func(v any) bool { return v.(int)%2 == 1 }
	ok(t, o.Route(odd, "odd"))
	ok(t, o.Route(anything, "all"))
	ok(t, o.Route(odd, "all"))
	for i := range 4 {
		_, err := o.Emit(t.Context(), i)
		ok(t, err)
	}
	if got := payloads(o.Stream("odd")); !slices.Equal(got, []any{1, 3}) {
		t.Errorf("odd has %v", got)
	}
	if got := payloads(o.Stream("all")); !slices.Equal(got, []any{0, 1, 1, 2, 3, 3}) {
		t.Errorf("all has %v", got)
	}
	wants(t, o.Route(nil, "x"), session.ErrInvalid)
	wants(t, o.Route(anything, ""), session.ErrInvalid)
	// S-23: a route that panics stops the rest.
	got := gather(t, o, session.Where(anything))
	if _, err := o.Emit(t.Context(), "no number"); !errors.Is(err, session.ErrPanic) || len(*got) != 0 || o.Len() != 5 {
		t.Errorf("%v, told %v, %d events", err, *got, o.Len())
	}
	if got := o.Stream("all"); len(got) != 6 {
		t.Error("routes behind the one that panicked were asked")
	}
}

// S-23: order, results, and what an error stops.
func TestDispatch(t *testing.T) {
	o := observer(session.ObserverOptions{})
	release := make(chan struct{})
	var mu sync.Mutex
	var order []string
	handler := func(name string, result any, err error) *session.Handler {
		return session.NewHandler(func(context.Context, any, *session.Observer) (any, error) {
			mu.Lock()
			order = append(order, name)
			mu.Unlock()
			if name == "a1" {
				<-release // the other one must run beside it
			}
			if name == "a2" {
				close(release)
			}
			return result, err
		})
	}
	key := session.Where(anything)
	ok(t, o.ObserveAsync(handler("a1", 1, nil), key))
	ok(t, o.Observe(handler("s1", 2, nil), key))
	ok(t, o.ObserveAsync(handler("a2", 3, nil), key))
	ok(t, o.Observe(handler("s2", nil, nil), key))
	results, err := o.Emit(t.Context(), 0)
	ok(t, err)
	if !slices.Equal(results, []any{2, nil, 1, 3}) || !slices.Equal(order[:2], []string{"s1", "s2"}) || len(order) != 4 {
		t.Errorf("results %v, order %q", results, order)
	}

	// Asynchronous errors and panics are joined, and the results are there all the same.
	release = make(chan struct{})
	other := errors.New("another")
	ok(t, o.ObserveAsync(handler("a3", 4, other), key))
	ok(t, o.ObserveAsync(session.NewHandler(func(context.Context, any, *session.Observer) (any, error) { panic(errTest) }), key))
	results, err = o.Emit(t.Context(), 0)
	if !errors.Is(err, other) || !errors.Is(err, errTest) || !errors.Is(err, session.ErrPanic) || !slices.Equal(results, []any{2, nil, 1, 3, 4, nil}) {
		t.Errorf("results %v, error %v", results, err)
	}

	// The first synchronous error or panic stops all.
	for _, bad := range []*session.Handler{
		handler("bad", 5, errTest),
		session.NewHandler(func(context.Context, any, *session.Observer) (any, error) { panic(errTest) }),
	} {
		order = nil
		ok(t, o.Observe(bad, key))
		never := handler("never", 6, nil)
		ok(t, o.Observe(never, key))
		results, err = o.Emit(t.Context(), 0)
		if !errors.Is(err, errTest) || !slices.Equal(results, []any{2, nil}) || slices.Contains(order, "never") || slices.Contains(order, "a1") {
			t.Errorf("results %v, error %v, order %q", results, err, order)
		}
		o.SafeEmit(t.Context(), 0)
		if n := o.Unobserve(bad) + o.Unobserve(never); n != 2 {
			t.Errorf("%d registrations", n)
		}
	}
}

// S-23: SafeEmit logs.
func TestSafeEmit(t *testing.T) {
	var log strings.Builder
	o := session.NewObserver(session.ObserverOptions{Log: slog.New(slog.NewTextHandler(&log, nil))})
	o.SafeEmit(t.Context(), 1)
	if log.Len() != 0 {
		t.Errorf("logged %q", log.String())
	}
	ok(t, o.Observe(session.NewHandler(func(context.Context, any, *session.Observer) (any, error) { return nil, errTest }), session.Where(anything)))
	o.SafeEmit(t.Context(), 1)
	if !strings.Contains(log.String(), "of the test") || o.Len() != 2 {
		t.Errorf("logged %q", log.String())
	}
}

// S-24
func TestKeys(t *testing.T) {
	role := session.InRole("r")
	big := session.Where(func(v any) bool { return v.(int) > 1 }) // panics for what is no number
	in := func(data any) purr { return purr{Envelope: session.Envelope{Data: data, Role: "r"}} }
	events := []any{1, 2, "x", in(2), in("y"), purr{loud: true}, cat{"c"}}
	wrapped := func(v any) any { return fmt.Sprint("wrapped ", v) }
	for name, c := range map[string]struct {
		keys []session.Key
		want []any
	}{
		"payload":                {[]session.Key{session.Type[int]()}, []any{1, 2, 2}},
		"interface":              {[]session.Key{session.Type[fmt.Stringer]()}, nil},
		"envelope":               {[]session.Key{session.Type[purr]()}, []any{in(2), in("y"), purr{loud: true}}},
		"envelope and predicate": {[]session.Key{session.Type[purr](), big}, []any{in(2)}},
		"predicate and envelope": {[]session.Key{big, session.Type[purr]()}, []any{in(2)}},
		"both types":             {[]session.Key{session.Type[string](), session.Type[purr]()}, []any{"y"}},
		"both types, turned":     {[]session.Key{session.Type[purr](), session.Type[string]()}, []any{in("y")}},
		"predicate":              {[]session.Key{big}, []any{2, 2}},
		"type and predicate":     {[]session.Key{session.Type[int](), big}, []any{2, 2}},
		"role":                   {[]session.Key{role}, []any{2, "y"}},
		"role and type":          {[]session.Key{role, session.Type[int]()}, []any{2}},
		"role and envelope":      {[]session.Key{session.Type[purr](), role}, []any{in(2), in("y")}},
		"every signal":           {[]session.Key{session.Type[session.Signal](), role}, []any{in(2), in("y")}},
		"wrapped":                {[]session.Key{session.Type[session.Wrapped]()}, []any{wrapped(1), wrapped(2), wrapped("x"), wrapped(cat{"c"})}},
	} {
		o := observer(session.ObserverOptions{})
		got := gather(t, o, c.keys...)
		for _, e := range events {
			_, err := o.Emit(t.Context(), e)
			ok(t, err)
		}
		for i, v := range *got {
			if w, ok := v.(session.Wrapped); ok {
				(*got)[i] = wrapped(w.Data)
			}
		}
		if !reflect.DeepEqual(*got, c.want) && len(*got)+len(c.want) > 0 {
			t.Errorf("%s: %v, want %v", name, *got, c.want)
		}
	}
	o := observer(session.ObserverOptions{})
	h := session.NewHandler(func(context.Context, any, *session.Observer) (any, error) { return 1, nil })
	wants(t, o.Observe(h), session.ErrNoKeys)
	wants(t, o.ObserveAsync(h), session.ErrNoKeys)
	wants(t, o.Observe(h, session.Key{}), session.ErrInvalid)
	wants(t, o.Observe(nil, role), session.ErrInvalid)
	ok(t, o.Observe(h, session.Type[int]()))
	ok(t, o.Observe(h, session.Type[string](), role))
	ok(t, o.ObserveAsync(h, session.Where(anything)))
	if results, err := o.Emit(t.Context(), 1); err != nil || len(results) != 2 {
		t.Errorf("%v, %v", results, err)
	}
	if n := o.Unobserve(h); n != 3 {
		t.Errorf("%d registrations were taken out", n)
	}
	if n := o.Unobserve(h); n != 0 {
		t.Errorf("%d registrations were left", n)
	}
	typed := session.HandlerOf(func(_ context.Context, c cat, _ *session.Observer) (any, error) { return c.name, nil })
	ok(t, o.Observe(typed, session.Type[cat]()))
	if results, err := o.Emit(t.Context(), cat{"tom"}); err != nil || !slices.Equal(results, []any{"tom"}) {
		t.Errorf("%v, %v", results, err)
	}
	ok(t, o.Observe(typed, session.Where(anything)))
	_, err := o.Emit(t.Context(), 1)
	wants(t, err, session.ErrInvalid)
}

// S-25
func TestAuthorize(t *testing.T) {
	var none *session.Observer
	if !none.Authorize(t.Context(), "x") {
		t.Error("a free branch may not act")
	}
	o := observer(session.ObserverOptions{})
	ok(t, o.Route(anything, "s"))
	got := gather(t, o, session.Where(anything))
	if !o.Authorize(t.Context(), "x") || o.Len() != 0 {
		t.Error("without a gate")
	}
	for _, gate := range []session.Gate{
		func(context.Context, any) (bool, error) { return false, nil },
		func(context.Context, any) (bool, error) { return true, errTest },
		func(context.Context, any) (bool, error) { panic("no") },
	} {
		o.SetGate(gate)
		if o.Authorize(t.Context(), "x") {
			t.Error("it may act")
		}
	}
	o.SetGate(func(_ context.Context, action any) (bool, error) { return action == "x", nil })
	if !o.Authorize(t.Context(), "x") {
		t.Error("it may not act")
	}
	denied := session.ByType[session.GateDenied](o)
	if len(denied) != 3 || denied[0].Data != "x" || o.Len() != 3 || len(*got) != 0 || o.Stream("s") != nil {
		t.Errorf("stored %v, told %v", denied, *got)
	}
}

// S-26, S-28: the history is bounded, oldest first, and what leaves it leaves the streams.
func TestHistoryIsBounded(t *testing.T) {
	for _, most := range []int{1, 3, 64, 100} {
		o := observer(session.ObserverOptions{History: most})
		ok(t, o.Route(func(v any) bool { return v.(int)%2 == 0 }, "even"))
		ok(t, o.Route(func(v any) bool { return v.(int) == 0 }, "first"))
		for n := 1; n <= 350; n++ {
			_, err := o.Emit(t.Context(), n-1)
			ok(t, err)
			if n%50 != 0 && n > 5 {
				continue
			}
			kept := min(n, most)
			h := o.History()
			if len(h) != kept || o.Len() != kept || o.Dropped() != uint64(n-kept) || h[0].Payload != n-kept || h[kept-1].Payload != n-1 || h[0].Seq != uint64(n-kept+1) {
				t.Fatalf("of %d events with %d kept there are %d, the first %+v, dropped %d", n, most, len(h), h[0], o.Dropped())
			}
			var even []any
			for _, e := range h {
				if e.Payload.(int)%2 == 0 {
					even = append(even, e.Payload)
				}
			}
			if got := payloads(o.Stream("even")); !slices.Equal(got, even) {
				t.Fatalf("the stream has %v, want %v", got, even)
			}
			if first := o.Stream("first"); (len(first) == 1) != (n <= most) {
				t.Fatalf("the stream of one has %v", first)
			}
		}
	}
}

// S-28
func TestByType(t *testing.T) {
	o := observer(session.ObserverOptions{})
	for _, e := range []any{1, purr{Envelope: session.Envelope{Data: 2}}, "x", purr{loud: true}} {
		_, err := o.Emit(t.Context(), e)
		ok(t, err)
	}
	o.SetGate(func(context.Context, any) (bool, error) { return false, nil })
	_, err := o.Emit(t.Context(), 3)
	ok(t, err)
	if got := session.ByType[int](o); !slices.Equal(got, []int{1, 2, 3}) {
		t.Errorf("numbers are %v", got)
	}
	if got := session.ByType[purr](o); len(got) != 2 || got[0].Data != 2 || !got[1].loud {
		t.Errorf("signals are %v", got)
	}
	if got := session.ByType[session.Signal](o); len(got) != 5 {
		t.Errorf("%d signals", len(got))
	}
}

// S-29: gate, routes and handlers may do everything with the observer; an emission goes on over the list that it began with.
func TestReentry(t *testing.T) {
	o := observer(session.ObserverOptions{})
	var got []any
	late := session.NewHandler(func(_ context.Context, v any, _ *session.Observer) (any, error) {
		got = append(got, fmt.Sprint("late ", v))
		return nil, nil
	})
	var once *session.Handler
	once = session.NewHandler(func(ctx context.Context, v any, o *session.Observer) (any, error) {
		got = append(got, v)
		if n := len(session.ByType[int](o)); n != v.(int)+1 {
			t.Errorf("at %v %d are stored", v, n)
		}
		if n := o.Unobserve(once); n != 1 {
			t.Errorf("%d registrations", n)
		}
		o.ClearGate()
		ok(t, o.Observe(late, session.Type[int]()))
		_, err := o.Emit(ctx, v.(int)+1)
		return nil, err
	})
	o.SetGate(func(ctx context.Context, v any) (bool, error) {
		o.Authorize(ctx, "an action of the gate")
		return true, nil
	})
	o.ClearGate()
	o.SetGate(func(_ context.Context, v any) (bool, error) { return o.Len() == v.(int), nil })
	ok(t, o.Route(func(v any) bool {
		ok(t, o.Route(func(any) bool { return false }, "x"))
		return len(o.Stream("s")) == v.(int)
	}, "s"))
	ok(t, o.Observe(once, session.Type[int]()))
	ok(t, o.Observe(session.HandlerOf(func(_ context.Context, n int, _ *session.Observer) (any, error) {
		got = append(got, fmt.Sprint("second ", n))
		return nil, nil
	}), session.Type[int]()))
	_, err := o.Emit(t.Context(), 0)
	ok(t, err)
	if !slices.Equal(got, []any{0, "second 1", "late 1", "second 0"}) {
		t.Errorf("told %v", got)
	}
	if n := len(o.Stream("s")); n != 2 {
		t.Errorf("the stream has %d", n)
	}
}

// S-29, S-09: many goroutines emit, observe, unobserve, route and set gates at once; every event is stored once.
func TestObserverRaces(t *testing.T) {
	o := observer(session.ObserverOptions{History: 500})
	var wg sync.WaitGroup
	const each = 300
	for g := range 8 {
		wg.Go(func() {
			h := session.NewHandler(func(_ context.Context, _ any, o *session.Observer) (any, error) {
				return o.Len(), nil
			})
			for i := range each {
				switch g {
				case 0:
					if o.Observe(h, session.Type[int]()) != nil || o.ObserveAsync(h, session.Where(anything)) != nil {
						t.Error("cannot observe")
					}
					if o.Unobserve(h) != 2 {
						t.Error("not both were taken out")
					}
				case 1:
					o.SetGate(func(context.Context, any) (bool, error) { return i%2 == 0, nil })
				case 2:
					o.History()
					o.Stream("s")
				case 3:
					if i < 5 {
						_ = o.Route(anything, "s")
					}
				default:
					if _, err := o.Emit(t.Context(), i); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	if o.Len() != 500 || o.Dropped() != 4*each-500 {
		t.Errorf("%d kept, %d dropped", o.Len(), o.Dropped())
	}
	if n := len(o.Stream("s")); n > 500*5 {
		t.Errorf("the stream has %d", n)
	}
}

// S-20: what a signal says of its time and id is kept.
func TestEnvelope(t *testing.T) {
	now := time.Unix(100, 5)
	o := observer(session.ObserverOptions{Now: func() time.Time { return now }})
	s := purr{Envelope: session.Envelope{Time: time.Unix(50, 0), Op: "op"}}
	s.ID = free(t, session.BranchOptions{}).ID()
	for _, e := range []any{s, purr{}, 1} {
		_, err := o.Emit(t.Context(), e)
		ok(t, err)
	}
	h := o.History()
	if h[0].ID != s.ID || !h[0].At.Equal(s.Time) || !h[1].At.Equal(now) || !h[2].At.Equal(now) || !h[2].Signal.Meta().Time.Equal(now) {
		t.Errorf("events are %+v", h)
	}
	if again := o.History(); again[1].ID != h[1].ID || h[1].ID == h[2].ID || h[1].ID.IsZero() {
		t.Error("an event has not one id")
	}
}
