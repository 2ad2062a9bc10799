package flow_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"soma/session"
	"soma/session/flow"
)

// blocks makes a node that says when it has begun and waits for leave, or for its context.
func blocks(id string, begun chan<- string, leave <-chan struct{}) flow.Node {
	return flow.Node{ID: id, Do: func(ctx context.Context, _ flow.In) (any, error) {
		begun <- id
		select {
		case <-leave:
			return id, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}
}

func start(t *testing.T, s *session.Session, b *flow.Builder, o flow.Options) *flow.Handle {
	t.Helper()
	h, err := flow.Start(t.Context(), s, build(t, b), o)
	ok(t, err)
	return h
}

func wait(t *testing.T, h *flow.Handle) *flow.Result {
	t.Helper()
	r, err := h.Wait(t.Context())
	ok(t, err)
	return r
}

// S-56, S-60: a pause holds back what has not begun, says so once for each, and lets go on what runs.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, leave := make(chan string, 9), make(chan struct{})
		var b flow.Builder
		b.Add(blocks("a", begun, leave)).Add(does("b", 1), "a").Add(does("c", 1), "b")
		b.Add(blocks("second", begun, leave)) // waits for the only slot
		s := newSession(t)
		h := start(t, s, &b, flow.Options{Concurrency: 1})
		is(t, "begun", <-begun, "a")
		is(t, "pause", h.Pause(), true)
		is(t, "pause again", h.Pause(), true)
		synctest.Wait()
		is(t, "second is held", of(notices(s), "second"), "queued paused")
		close(leave)
		synctest.Wait()
		is(t, "a goes on", of(notices(s), "a"), "queued started completed")
		is(t, "b is held", of(notices(s), "b"), "queued paused")
		is(t, "c waits", of(notices(s), "c"), "queued")
		_, err := h.Wait(expired(t))
		wants(t, err, context.Canceled)
		before := runtime.NumGoroutine()
		<-time.After(time.Hour)
		is(t, "goroutines of a paused flow", runtime.NumGoroutine()-before, 0)
		is(t, "resume", h.Resume(), true)
		is(t, "resume again", h.Resume(), true)
		r := wait(t, h)
		slices.Sort(r.Completed)
		is(t, "completed", r.Completed, "[a b c second]")
		is(t, "b", of(notices(s), "b"), "queued paused started completed")
		once(t, s, r)
		is(t, "after the end", fmt.Sprint(h.Pause(), h.Resume(), h.Cancel()), "false false false")
		for range 20 {
			_, err = h.Wait(expired(t))
			ok(t, err)
		}
	})
}

// S-56: a node whose pause has not been told yet does not start before that.
func TestPauseIsToldFirst(t *testing.T) {
	s := newSession(t)
	told, leave := make(chan struct{}, 1), make(chan struct{})
	slow := session.HandlerOf(func(_ context.Context, n flow.NodePaused, _ *session.Observer) (any, error) {
		if n.Node == "first" { // the clerk is busy with this one, while the others' pauses wait to be told
			told <- struct{}{}
			<-leave
		}
		return nil, nil
	})
	ok(t, s.Observer().Observe(slow, session.Type[flow.NodePaused]()))
	begun, end := make(chan string, 1), make(chan struct{})
	var b flow.Builder
	b.Add(blocks("a", begun, end)).Add(does("first", 1)).Add(does("second", 1)).Add(does("third", 1))
	h := start(t, s, &b, flow.Options{Concurrency: 1})
	<-begun
	h.Pause()
	<-told
	h.Resume()
	close(end)
	for !slices.Contains(notices(s), "completed a") {
		runtime.Gosched()
	}
	close(leave)
	r := wait(t, h)
	is(t, "second", of(notices(s), "second"), "queued paused started completed")
	once(t, s, r)
}

func expired(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// S-56: a handler that hears of a pause ends it; the node's notices stay in order.
func TestResumeFromAHandler(t *testing.T) {
	begun, leave := make(chan string, 9), make(chan struct{})
	var b flow.Builder
	b.Add(blocks("a", begun, leave)).Add(does("b", 1), "a")
	s := newSession(t)
	var h *flow.Handle
	resumes := session.HandlerOf(func(context.Context, flow.NodePaused, *session.Observer) (any, error) { return h.Resume(), nil })
	ok(t, s.Observer().Observe(resumes, session.Type[flow.NodePaused]()))
	h = start(t, s, &b, flow.Options{})
	<-begun
	h.Pause()
	close(leave)
	r := wait(t, h)
	is(t, "b", of(notices(s), "b"), "queued paused started completed")
	once(t, s, r)
}

// S-56: cancel ends what waits at once, asks what runs, and takes what that answers.
func TestCancel(t *testing.T) {
	begun, never, leave := make(chan string, 9), make(chan struct{}), make(chan struct{})
	var b flow.Builder
	b.Add(blocks("gives up", begun, never)).Add(does("waits", 1), "gives up")
	b.Add(flow.Node{ID: "goes on", Do: func(ctx context.Context, _ flow.In) (any, error) {
		begun <- "goes on"
		<-leave // deaf to its context
		return "done", nil
	}}).Add(does("behind", 1), "goes on")
	s := newSession(t)
	ended := make(chan string, 9)
	o := flow.Options{Concurrency: 2, Progress: func(p flow.Progress) {
		if p.Kind == flow.IsCancelled {
			ended <- p.Node
		}
	}}
	h := start(t, s, &b, o)
	<-begun
	<-begun
	is(t, "cancel", h.Cancel(), true)
	is(t, "cancel again", h.Cancel(), false)
	told := []string{<-ended, <-ended, <-ended} // although "goes on" keeps its slot
	slices.Sort(told)
	is(t, "told", told, "[behind gives up waits]")
	is(t, "pause", h.Pause(), false)
	wants(t, h.Inject(flow.Child{Node: does("late", 1)}), flow.ErrEnded)
	close(leave)
	r := wait(t, h)
	is(t, "completed", r.Completed, "[goes on]")
	slices.Sort(r.Cancelled)
	is(t, "cancelled", r.Cancelled, "[behind gives up waits]")
	once(t, s, r)
}

// S-56: who pauses, resumes and pauses again before the first pause has been told still resumes all.
func TestPauseTwiceBeforeItIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t)
		leave := make(chan struct{})
		slow := session.HandlerOf(func(context.Context, flow.NodePaused, *session.Observer) (any, error) {
			<-leave
			return nil, nil
		})
		ok(t, s.Observer().Observe(slow, session.Type[flow.NodePaused]()))
		begun, end := make(chan string, 1), make(chan struct{})
		var b flow.Builder
		b.Add(blocks("runs", begun, end)).Add(does("first", 1)).Add(does("second", 1))
		h := start(t, s, &b, flow.Options{Concurrency: 1})
		<-begun
		h.Pause()
		synctest.Wait() // the clerk is in the handler
		h.Resume()
		h.Pause()
		close(leave)
		synctest.Wait()
		h.Resume()
		close(end)
		synctest.Wait()
		r, err := h.Wait(expired(t))
		ok(t, err)
		is(t, "completed", len(r.Completed), 3)
		once(t, s, r)
	})
}

// S-56: a condition that cancels the flow keeps its own node from beginning.
func TestCancelFromACondition(t *testing.T) {
	var h *flow.Handle
	started := make(chan struct{})
	var b flow.Builder
	b.Add(flow.Node{ID: "a", Do: func(context.Context, flow.In) (any, error) {
		<-started
		return nil, nil
	}})
	b.Add(does("b", 1))
	b.Add(does("c", 1))
	b.Edge("a", "c", flow.When(func(context.Context, flow.Passage) (bool, error) {
		h.Cancel()
		return true, nil
	}))
	s := newSession(t)
	h = start(t, s, &b, flow.Options{})
	close(started)
	r := wait(t, h)
	is(t, "cancelled", r.Cancelled, "[c]")
	is(t, "c", of(notices(s), "c"), "queued cancelled")
	once(t, s, r)
}

// S-56: a paused flow ends when its context does, and says why.
func TestCancelOfThePaused(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	var b flow.Builder
	for i := range 20 {
		b.Add(does(fmt.Sprint(i), 1)).Add(does(fmt.Sprint("after ", i), 1), fmt.Sprint(i))
	}
	s := newSession(t)
	var h *flow.Handle
	ready := make(chan struct{})
	paused := sync.OnceFunc(func() {
		<-ready
		h.Pause()
		cancel(errTest)
	})
	o := flow.Options{Progress: func(p flow.Progress) {
		if p.Kind == flow.IsStarted {
			paused()
		}
	}}
	h, err := flow.Start(ctx, s, build(t, &b), o)
	ok(t, err)
	close(ready)
	r, err := h.Wait(t.Context())
	wants(t, err, errTest)
	is(t, "nodes", len(r.Completed)+len(r.Cancelled), 40)
	once(t, s, r)
	over, stop := context.WithCancel(t.Context())
	stop()
	for range 50 { // whoever is first to see it
		s := newSession(t)
		r, err = flow.Run(over, s, build(t, &b), flow.Options{Reactive: flow.On(granted)})
		wants(t, err, context.Canceled)
		is(t, "cancelled from the start", len(r.Cancelled), 40)
		once(t, s, r)
		results, err := s.Observer().Emit(t.Context(), wish{})
		ok(t, err)
		is(t, "who still listens", len(results), 0)
	}
}

// S-56: a node may be the first to see that the context has ended; the flow says so all the same.
func TestEndOfTheContext(t *testing.T) {
	for range 200 {
		ctx, cancel := context.WithCancelCause(t.Context())
		var b flow.Builder
		b.Add(flow.Node{ID: "a", Do: func(ctx context.Context, _ flow.In) (any, error) {
			cancel(errTest)
			return nil, ctx.Err()
		}})
		r, err := flow.Run(ctx, newSession(t), build(t, &b), flow.Options{})
		wants(t, err, errTest)
		is(t, "cancelled", r.Cancelled, "[a]")
	}
}

// S-56: progress tells of each node that it is queued, starts, and ends.
func TestProgress(t *testing.T) {
	var b flow.Builder
	b.Add(fails("a")).Add(does("b", 1), "a").Add(does("c", 1)).Edge("a", "c", flow.If(flow.Completed))
	var told []string
	last := 0
	o := flow.Options{Concurrency: 1, Progress: func(p flow.Progress) {
		told = append(told, fmt.Sprint(p.Node, ":", p.Kind, ":", p.Ended, "/", p.Total))
		if p.Kind == flow.IsFailed && !errors.Is(p.Err, errTest) {
			t.Errorf("the error is %v", p.Err)
		}
		last = p.Ended
	}}
	run(t, &b, o)
	is(t, "told", told, "[a:queued:0/3 b:queued:0/3 c:queued:0/3 a:started:0/3 a:failed:1/3 b:started:1/3 b:completed:2/3 c:skipped:3/3]")
	is(t, "ended", last, 3)

	// A panic is an error of the flow, which goes on.
	s := newSession(t)
	r, err := flow.Run(t.Context(), s, build(t, &b), flow.Options{Progress: func(flow.Progress) { panic(errTest) }})
	wants(t, err, errTest)
	is(t, "went on", len(r.Completed), 1)
	once(t, s, r)
}

// S-56: what handlers do, on the observer and to the flow, disturbs neither.
func TestHandlersOfSignals(t *testing.T) {
	var b flow.Builder
	for i := range 10 {
		b.Add(does(fmt.Sprint(i), 1))
	}
	s := newSession(t)
	breaks := session.HandlerOf(func(context.Context, flow.NodeStarted, *session.Observer) (any, error) { panic(errTest) })
	ok(t, s.Observer().Observe(breaks, session.Type[flow.NodeStarted]()))
	r, err := flow.Run(t.Context(), s, build(t, &b), flow.Options{})
	ok(t, err)
	is(t, "completed", len(r.Completed), 10)

	// A handler that ends the goroutine which tells of cancelled nodes.
	exits := session.HandlerOf(func(context.Context, flow.NodeCancelled, *session.Observer) (any, error) {
		runtime.Goexit()
		return nil, nil
	})
	ok(t, s.Observer().Observe(exits, session.Type[flow.NodeCancelled]()))
	begun := make(chan string, 9)
	var c flow.Builder
	c.Add(blocks("a", begun, nil)).Add(does("b", 1), "a").Add(does("c", 1), "a")
	h := start(t, s, &c, flow.Options{})
	<-begun
	h.Cancel()
	r, err = h.Wait(t.Context())
	ok(t, err)
	is(t, "cancelled", len(r.Cancelled), 3)
}
