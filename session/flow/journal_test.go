package flow_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"

	"soma/session"
	"soma/session/flow"
)

// book is a journal in memory, which outlives runs.
type book struct {
	mu      sync.Mutex
	records map[string]flow.Record
	done    func(node string) error // what Done and record what Record returns instead
	record  func(node string) error
	last    func(node string) // is called when a node is recorded
}

func newBook() *book { return &book{records: map[string]flow.Record{}} }

func (b *book) Done(_ context.Context, node string) (flow.Record, bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.done != nil {
		if err := b.done(node); err != nil {
			return flow.Record{}, false, err
		}
	}
	r, found := b.records[node]
	return r, found, nil
}

func (b *book) Record(ctx context.Context, node string, r flow.Record) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.record != nil {
		if err := b.record(node); err != nil {
			return err
		}
	}
	if _, twice := b.records[node]; twice {
		return fmt.Errorf("node %s is recorded twice", node)
	}
	b.records[node] = r
	if b.last != nil {
		b.last(node)
	}
	return nil
}

// counted is a node that counts how often it runs.
func counted(n flow.Node, runs map[string]int, mu *sync.Mutex) flow.Node {
	do := n.Do
	n.Do = func(ctx context.Context, in flow.In) (any, error) {
		mu.Lock()
		runs[in.Node]++
		mu.Unlock()
		return do(ctx, in)
	}
	return n
}

// S-59: what a journal knows is not run again: results, failures, skips, vetoes, the context and spawned nodes are there as before.
func TestJournal(t *testing.T) {
	var mu sync.Mutex
	runs := map[string]int{}
	c := func(n flow.Node) flow.Node { return counted(n, runs, &mu) }
	build1 := func() *flow.Builder {
		var b flow.Builder
		b.Add(c(does("a", map[string]any{"context": map[string]any{"k": "v"}, "n": 1}))).Add(c(fails("bad")), "a")
		b.Add(c(does("reads", "r")), "bad").Add(c(gate("no", false)), "a").Add(c(does("vetoed", 1)), "no")
		b.Add(c(does("skipped", 1))).Edge("a", "skipped", flow.If(flow.Failed))
		b.Add(c(does("asks", []wish{{id: "x", what: "w"}, {what: "null"}})), "a")
		b.Add(flow.Node{ID: "emits", Do: func(ctx context.Context, in flow.In) (any, error) {
			mu.Lock()
			runs[in.Node]++
			mu.Unlock()
			_, err := in.Branch.Observer().Emit(ctx, wish{what: "e"})
			return nil, err
		}}, "a")
		return &b
	}
	builder := func(ctx context.Context, w wish) (*flow.Child, error) {
		child, err := granted(ctx, w)
		if child != nil {
			child.Node = c(child.Node)
		}
		return child, err
	}
	j := newBook()
	o := flow.Options{Journal: j, Reactive: flow.On(builder), Concurrency: 1}
	first := run(t, build1(), o)
	s := newSession(t)
	second, err := flow.Run(t.Context(), s, build(t, build1()), o)
	ok(t, err)
	for node, n := range runs {
		is(t, node+" ran", n, 1)
	}
	is(t, "ran", len(runs), 8)
	is(t, "completed", sorted(second.Completed), sorted(first.Completed))
	is(t, "failed", second.Failed, first.Failed)
	is(t, "the failure", second.Errors["bad"], "bad: of the test")
	is(t, "skipped", sorted(second.Skipped), sorted(first.Skipped))
	is(t, "vetoed", second.Vetoed, "map[no:[vetoed]]")
	is(t, "context", second.Context, "map[k:v]")
	is(t, "spawned", sorted(second.Spawned), "[emits/1 x]")
	is(t, "results", fmt.Sprint(second.Results["x"], second.Results["emits/1"]), "we")
	is(t, "restored", len(second.Restored), 9)
	is(t, "no start", of(notices(s), "a"), "queued completed")
	is(t, "restored", session.ByType[flow.NodeCompleted](s.Observer())[0].Restored, true)
	is(t, "refused before", reasons(first), "asks>:null_child")
	once(t, s, second)

	// A run without a builder does not want what was spawned.
	o.Reactive = flow.Reactive{}
	third := run(t, build1(), o)
	is(t, "spawned", len(third.Spawned), 0)

	// Failed nodes run again on request, and what was skipped is decided about anew.
	o.RetryFailed = true
	j.records["bad"] = flow.Record{State: flow.Failed, Error: "then"}
	delete(j.records, "skipped")
	j.record = func(node string) error {
		delete(j.records, node)
		return nil
	}
	run(t, build1(), o)
	is(t, "bad", runs["bad"], 2)
	is(t, "reads", runs["reads"], 1)
	is(t, "skipped", runs["skipped"], 0)
}

func sorted(list []string) []string {
	list = slices.Clone(list)
	slices.Sort(list)
	return list
}

// S-59: a record is there before anybody hears of the end, and before a dependent starts; cancelled nodes have none.
func TestRecordFirst(t *testing.T) {
	s := newSession(t)
	j := newBook()
	begun := make(chan string, 1)
	var b flow.Builder
	b.Add(does("a", 1)).Add(flow.Node{ID: "b", Do: func(context.Context, flow.In) (any, error) {
		if _, found, _ := j.Done(t.Context(), "a"); !found {
			t.Error("b starts before a is recorded")
		}
		return nil, nil
	}}, "a").Add(blocks("c", begun, nil), "b").Add(does("d", 1), "c")
	h := start(t, s, &b, flow.Options{Journal: j, Progress: func(p flow.Progress) {
		if _, found, _ := j.Done(t.Context(), p.Node); found != (p.Kind == flow.IsCompleted) {
			t.Errorf("%s is told, recorded: %v", p.Kind, found)
		}
	}})
	<-begun
	h.Cancel()
	r := wait(t, h)
	is(t, "cancelled", sorted(r.Cancelled), "[c d]")
	is(t, "recorded", len(j.records), 2)
}

// S-59: what a node asks for while the flow is cancelled is refused, and is there in the next run.
func TestRequestsOfTheCancelled(t *testing.T) {
	var h *flow.Handle
	ready := make(chan struct{})
	runs := 0
	var b flow.Builder
	b.Add(flow.Node{ID: "a", Do: func(context.Context, flow.In) (any, error) {
		<-ready
		runs++
		h.Cancel()
		return wish{id: "x", what: "w"}, nil
	}})
	o := flow.Options{Journal: newBook(), Reactive: flow.On(granted)}
	h = start(t, newSession(t), &b, o)
	close(ready)
	r := wait(t, h)
	is(t, "completed", r.Completed, "[a]")
	is(t, "refused", reasons(r), "a>:ended")
	r = run(t, &b, o)
	is(t, "completed", r.Completed, "[a x]")
	is(t, "ran", runs, 1)
}

// S-59: a journal that fails ends the flow, and what is not recorded runs again.
func TestJournalFails(t *testing.T) {
	for name, breaks := range map[string]func(*book){
		"record": func(j *book) { j.record = func(node string) error { return at(node, "b", errTest) } },
		"done":   func(j *book) { j.done = func(node string) error { return at(node, "b", errTest) } },
		"panics": func(j *book) {
			j.record = func(node string) error {
				if at(node, "b", errTest) != nil {
					panic(errTest)
				}
				return nil
			}
		},
		"state": func(j *book) { j.records["b"] = flow.Record{State: flow.Cancelled} },
	} {
		t.Run(name, func(t *testing.T) {
			var b flow.Builder
			b.Add(does("a", 1)).Add(does("b", 1), "a").Add(does("c", 1), "b")
			j := newBook()
			breaks(j)
			s := newSession(t)
			r, err := flow.Run(t.Context(), s, build(t, &b), flow.Options{Journal: j})
			want := errTest
			if name == "state" {
				want = session.ErrInvalid
			}
			wants(t, err, want)
			is(t, "c", slices.Contains(r.Cancelled, "c"), true)
			is(t, "a", slices.Contains(r.Completed, "a"), true)
			once(t, s, r)
		})
	}
}

func at(node, where string, err error) error {
	if node == where {
		return err
	}
	return nil
}

// S-59: a record has a JSON form.
func TestRecordAsJSON(t *testing.T) {
	text, err := json.Marshal(flow.Record{State: flow.Failed, Error: "no"})
	ok(t, err)
	is(t, "text", string(text), `{"state":"failed","error":"no"}`)
	var r flow.Record
	ok(t, json.Unmarshal(text, &r))
	is(t, "state", r.State, flow.Failed)
	wants(t, json.Unmarshal([]byte(`{"state":"odd"}`), &r), session.ErrInvalid)
	is(t, "an unknown state", flow.State(99), "state 99")
}
