package flow_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"soma/session"
	"soma/session/flow"
)

// answers is a condition with a fixed answer.
func answers(holds bool, err error) flow.Condition {
	return flow.When(func(context.Context, flow.Passage) (bool, error) { return holds, err })
}

// S-52
func TestConditions(t *testing.T) {
	var b flow.Builder
	b.Add(does("a", 1)).Add(does("b", 2)).Add(does("never", 0)).Add(does("some", 0)).Add(does("none", 0)).Add(does("behind", 0), "none")
	b.Add(does("behind both", 0), "none", "some").Add(does("far behind", 0), "behind")
	b.Edge("a", "some", answers(false, nil)).Edge("b", "some", answers(true, nil))
	b.Edge("a", "none", answers(false, nil)).Edge("b", "none", answers(false, nil))
	b.Edge("a", "never", flow.If(flow.Failed))
	sees := flow.When(func(_ context.Context, p flow.Passage) (bool, error) {
		return p.Node == "a" && p.State == flow.Completed && p.Result == 1 && p.Err == nil && p.Context()["k"] == "v", nil
	})
	b.Add(does("sees", 0)).Edge("a", "sees", sees)
	// An edge from a skipped node does not pass, whatever its condition says.
	b.Add(does("from skipped", 0)).Edge("none", "from skipped", answers(true, nil))
	s := newSession(t)
	r, err := flow.Run(t.Context(), s, build(t, &b), flow.Options{Context: map[string]any{"k": "v"}, Concurrency: 1})
	ok(t, err)
	is(t, "completed", r.Completed, "[a b sees some behind both]")
	is(t, "skipped", r.Skipped, "[never none behind from skipped far behind]")
	is(t, "a skipped node", of(notices(s), "far behind"), "queued skipped")
	is(t, "reason", session.ByType[flow.NodeSkipped](s.Observer())[0].Reason, "no edge passes")
	once(t, s, r)
}

// S-52: a condition that errors or panics fails its node, once, whatever other edges say.
func TestFailingConditions(t *testing.T) {
	asked := 0
	var b flow.Builder
	b.Add(does("a", 1)).Add(does("b", 1), "a").Add(does("c", 1)).Add(does("after", 1), "b")
	count := flow.When(func(context.Context, flow.Passage) (bool, error) {
		asked++
		return true, errTest
	})
	b.Edge("a", "b", count)
	b.Edge("a", "c", flow.When(func(context.Context, flow.Passage) (bool, error) { panic(errTest) }))
	s := newSession(t)
	r, err := flow.Run(t.Context(), s, build(t, &b), flow.Options{Concurrency: 1})
	ok(t, err)
	is(t, "failed", r.Failed, "[b c]")
	wants(t, r.Errors["b"], errTest)
	wants(t, r.Errors["c"], session.ErrPanic)
	wants(t, r.Errors["c"], errTest)
	is(t, "asked", asked, 1)
	is(t, "told", of(notices(s), "b"), "queued failed")
	is(t, "completed", r.Completed, "[a after]")
}

// S-53
func TestFailureIsData(t *testing.T) {
	var b flow.Builder
	strict := fails("strict")
	strict.OnFailure = flow.SkipDependents
	b.Add(fails("bad")).Add(strict)
	b.Add(flow.Node{ID: "reads", Do: func(_ context.Context, in flow.In) (any, error) {
		return fmt.Sprint(in.Before[0].State, errors.Is(in.Before[0].Err, errTest), in.Before[0].Result), nil
	}}, "bad")
	b.Add(does("not reached", 0), "strict").Add(does("one of two", 0), "strict", "bad")
	b.Add(does("repair", 0)).Edge("bad", "repair", flow.If(flow.Failed))
	b.Add(does("good", 0)).Edge("bad", "good", flow.If(flow.Completed))
	b.Add(does("repair strict", 0)).Edge("strict", "repair strict", flow.If(flow.Failed))
	s := newSession(t)
	r, err := flow.Run(t.Context(), s, build(t, &b), flow.Options{Concurrency: 1})
	ok(t, err)
	is(t, "failed", r.Failed, "[bad strict]")
	is(t, "completed", r.Completed, "[reads repair one of two]")
	is(t, "skipped", r.Skipped, "[good not reached repair strict]")
	is(t, "read", r.Results["reads"], "failed true <nil>")
	wants(t, r.Errors["bad"], errTest)
	_, has := r.Results["bad"]
	is(t, "a failed node has a result", has, false)
	is(t, "told", of(notices(s), "bad"), "queued started failed")
	once(t, s, r)
}

// S-53: a node that panics or ends its goroutine fails like any other.
func TestNodesThatBreak(t *testing.T) {
	var b flow.Builder
	b.Add(flow.Node{ID: "panics", Do: func(context.Context, flow.In) (any, error) { panic(errTest) }})
	b.Add(flow.Node{ID: "exits", Do: func(context.Context, flow.In) (any, error) { runtime.Goexit(); return nil, nil }})
	b.Add(does("after", 1), "panics", "exits")
	s := newSession(t)
	r, err := flow.Run(t.Context(), s, build(t, &b), flow.Options{Concurrency: 1})
	ok(t, err)
	is(t, "failed", r.Failed, "[panics exits]")
	wants(t, r.Errors["panics"], errTest)
	wants(t, r.Errors["exits"], session.ErrPanic)
	is(t, "completed", r.Completed, "[after]")
	once(t, s, r)
}

// S-54, S-60: five at once where nothing is said, one with 1; a node that waits holds no slot.
func TestConcurrency(t *testing.T) {
	for given, want := range map[int]int{0: 5, 1: 1, 3: 3} {
		synctest.Test(t, func(t *testing.T) {
			var now, most atomic.Int32
			work := func(context.Context, flow.In) (any, error) {
				n := now.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				<-time.After(time.Second)
				now.Add(-1)
				return nil, nil
			}
			var b flow.Builder
			for i := range 12 {
				root, last := fmt.Sprint("root ", i), fmt.Sprint("last ", i)
				b.Add(flow.Node{ID: last, Do: work}, root) // those that wait come first
				b.Add(flow.Node{ID: root, Do: work})
			}
			began := time.Now()
			r := run(t, &b, flow.Options{Concurrency: given})
			is(t, "completed", len(r.Completed), 24)
			is(t, "at once", most.Load(), want)
			is(t, "took", time.Since(began), time.Duration((24+want-1)/want)*time.Second)
		})
	}
}
