package flow_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"soma/session"
	"soma/session/flow"
)

// world is a random graph with fixed behaviour, and what is seen of its runs.
type world struct {
	nodes []wanted
	mu    sync.Mutex
	runs  map[string]int // how often a node has worked, in all runs
	ended map[string]bool
	done  map[string]int // how often it has done its work, without an error
	at    func(node string)
	early string // a node that ran before a predecessor had ended
}

type wanted struct {
	id          string
	fails, gate bool
	rejects     bool
	skips       bool // dependents, when it fails
	in          []wantedEdge
	spawns      []wish
	escalates   int
	givesUp     bool // if its context has ended
}

type wantedEdge struct {
	from int
	kind string // always, yes, no, error, failed
}

func drawWorld(t *rapid.T) *world {
	w := &world{runs: map[string]int{}, done: map[string]int{}, ended: map[string]bool{}}
	n := rapid.IntRange(1, 10).Draw(t, "nodes")
	one := func(of int, what string) bool { return rapid.IntRange(0, of).Draw(t, what) == 0 }
	for i := range n {
		x := wanted{id: fmt.Sprintf("n%d", i), fails: one(4, "fails"), gate: one(5, "gate"), skips: one(1, "skips"), givesUp: one(1, "gives up")}
		x.rejects = x.gate && one(1, "rejects")
		if one(5, "escalates") {
			x.escalates = rapid.IntRange(1, 2).Draw(t, "times")
		}
		for from := range i {
			for range 2 {
				if one(5, "edge") {
					kind := rapid.SampledFrom([]string{"always", "always", "yes", "no", "error", "failed"}).Draw(t, "kind")
					x.in = append(x.in, wantedEdge{from, kind})
				}
			}
		}
		w.nodes = append(w.nodes, x)
	}
	return w
}

func (w *world) graph(t fataler) *flow.Graph {
	var b flow.Builder
	for _, x := range w.nodes {
		node := flow.Node{ID: x.id, Gate: x.gate, Do: w.work(x), Retries: 2}
		if x.skips {
			node.OnFailure = flow.SkipDependents
		}
		b.Add(node)
	}
	for _, x := range w.nodes {
		for _, e := range x.in {
			c := map[string]flow.Condition{"yes": answers(true, nil), "no": answers(false, nil), "error": answers(true, errTest), "failed": flow.If(flow.Failed)}[e.kind]
			b.Edge(w.nodes[e.from].id, x.id, c)
		}
	}
	g, err := b.Build()
	if err != nil {
		t.Fatalf("cannot build: %v", err)
	}
	return g
}

func (w *world) work(x wanted) flow.Func {
	return func(ctx context.Context, in flow.In) (any, error) {
		w.mu.Lock()
		for _, e := range x.in {
			if !w.ended[w.nodes[e.from].id] {
				w.early = x.id
			}
		}
		if in.Attempt == 1 {
			w.runs[x.id]++
		}
		at := w.at
		w.mu.Unlock()
		if at != nil {
			at(x.id)
		}
		if x.givesUp && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if in.Attempt > x.escalates && !x.fails {
			w.mu.Lock()
			w.done[x.id]++
			w.mu.Unlock()
		}
		switch {
		case in.Attempt <= x.escalates:
			return nil, &flow.Escalation{Reason: "again"}
		case x.fails:
			return nil, errTest
		case x.gate:
			return !x.rejects, nil
		case len(x.spawns) > 0:
			return x.spawns, nil
		}
		return x.id, nil
	}
}

// options make the world see the ends of nodes.
func (w *world) options(t *rapid.T) flow.Options {
	return flow.Options{Concurrency: rapid.IntRange(1, 4).Draw(t, "concurrency"), Progress: func(p flow.Progress) {
		if p.Kind != flow.IsQueued && p.Kind != flow.IsStarted {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.ended[p.Node] = true
		}
	}}
}

// states is how each node must end, worked out one after another.
func (w *world) states() map[string]flow.State {
	type end struct {
		state   flow.State
		rejects bool
	}
	ends := make([]end, len(w.nodes))
	for i, x := range w.nodes {
		e := &ends[i]
		vetoed, pass, broken := false, len(x.in) == 0, false
		for _, in := range x.in {
			from := ends[in.from]
			vetoed = vetoed || from.rejects
			if from.state != flow.Completed && (from.state != flow.Failed || w.nodes[in.from].skips) {
				continue
			}
			switch in.kind {
			case "always", "yes":
				pass = true
			case "error":
				broken = true
			case "failed":
				pass = pass || from.state == flow.Failed
			}
		}
		switch {
		case vetoed:
			e.state, e.rejects = flow.Skipped, true // what is behind it is vetoed, too
		case broken:
			e.state, e.rejects = flow.Failed, x.gate
		case !pass:
			e.state = flow.Skipped
		case x.fails:
			e.state, e.rejects = flow.Failed, x.gate
		default:
			e.state, e.rejects = flow.Completed, x.rejects
		}
	}
	all := map[string]flow.State{}
	for i, x := range w.nodes {
		all[x.id] = ends[i].state
	}
	return all
}

func statesOf(r *flow.Result) map[string]flow.State {
	all := map[string]flow.State{}
	for state, list := range map[flow.State][]string{flow.Completed: r.Completed, flow.Failed: r.Failed, flow.Skipped: r.Skipped, flow.Cancelled: r.Cancelled} {
		for _, node := range list {
			all[node] = state
		}
	}
	return all
}

func modelSession(t *rapid.T) *session.Session {
	s, err := session.New(session.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// check says what holds of every run.
func (w *world) check(t *rapid.T, s *session.Session, r *flow.Result) {
	once(t, s, r)
	if w.early != "" {
		t.Fatalf("node %s ran before a predecessor had ended", w.early)
	}
	for _, kinds := range [][]string{r.Completed, r.Failed, r.Skipped, r.Cancelled} {
		if len(kinds) != len(slices.Compact(sorted(kinds))) {
			t.Fatalf("a node is listed twice: %v", kinds)
		}
	}
}

// S-52, S-53, S-54, S-55, S-56: every node of a random graph ends as the rules say, once.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		s := modelSession(t)
		r, err := flow.Run(context.Background(), s, w.graph(t), w.options(t))
		if err != nil {
			t.Fatal(err)
		}
		w.check(t, s, r)
		want := w.states()
		if got := statesOf(r); !maps.Equal(got, want) {
			t.Fatalf("ended as %v, want %v", got, want)
		}
		for node, n := range w.runs {
			if n != 1 || want[node] == flow.Skipped {
				t.Fatalf("node %s is %s and ran %d times", node, want[node], n)
			}
		}
	})
}

// S-53, S-56: the same with a pause, a resumption and a cancellation from within some node: what is not cancelled ended as the rules say.
func TestModelCancelled(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		s := modelSession(t)
		orders := rapid.MapOf(rapid.IntRange(0, len(w.nodes)-1), rapid.SampledFrom([]string{"pause", "resume", "cancel", "pause and resume"})).Draw(t, "orders")
		byContext := rapid.Bool().Draw(t, "by context")
		ctx, end := context.WithCancel(context.Background())
		defer end()
		var h *flow.Handle
		ready := make(chan struct{})
		w.at = func(node string) {
			<-ready
			for i, order := range orders {
				switch {
				case w.nodes[i].id != node:
				case order == "cancel" && byContext:
					end()
				case order == "cancel":
					h.Cancel()
				case order == "pause":
					h.Pause()
				case order == "resume":
					h.Resume()
				default:
					h.Pause()
					h.Resume()
				}
			}
		}
		h, err := flow.Start(ctx, s, w.graph(t), w.options(t))
		if err != nil {
			t.Fatal(err)
		}
		paused := session.HandlerOf(func(context.Context, flow.NodePaused, *session.Observer) (any, error) { return h.Resume(), nil })
		if err := s.Observer().Observe(paused, session.Type[flow.NodePaused]()); err != nil {
			t.Fatal(err)
		}
		close(ready)
		h.Resume() // a pause may have held back what there was before anybody listened
		r, err := h.Wait(context.Background())
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		w.check(t, s, r)
		want := w.states()
		for node, state := range statesOf(r) {
			if state != flow.Cancelled && state != want[node] {
				t.Fatalf("node %s is %s, want %s", node, state, want[node])
			}
		}
		if len(r.Cancelled) == 0 && !maps.Equal(statesOf(r), want) {
			t.Fatalf("ended as %v, want %v", statesOf(r), want)
		}
	})
}

// S-59: a flow that is ended at random, any number of times, and started again with its journal ends as the rules say, and no node that
// has done its work does it twice.
func TestModelJournal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		for i := range w.nodes {
			if rapid.Bool().Draw(t, "asks") {
				w.nodes[i].spawns = []wish{{id: "child of " + w.nodes[i].id, alone: rapid.Bool().Draw(t, "alone")}}
			}
		}
		g := w.graph(t)
		j := newBook()
		children := flow.On(func(ctx context.Context, x wish) (*flow.Child, error) {
			c, err := granted(ctx, x)
			c.Do = w.work(wanted{id: x.id})
			return c, err
		})
		w.at = func(node string) {
			if _, found, _ := j.Done(context.Background(), node); found {
				t.Errorf("node %s runs, and is recorded", node)
			}
		}
		for life := range rapid.IntRange(1, 4).Draw(t, "lives") + 1 {
			s := modelSession(t)
			o := w.options(t)
			o.Journal, o.Reactive = j, children
			w.ended = map[string]bool{}
			after := rapid.IntRange(0, len(w.nodes)).Draw(t, "recorded")
			var h *flow.Handle
			ready := make(chan struct{})
			j.last = func(string) {
				<-ready
				if after--; after == 0 && life < 3 {
					h.Cancel()
				}
			}
			h, err := flow.Start(context.Background(), s, g, o)
			if err != nil {
				t.Fatal(err)
			}
			close(ready)
			r, err := h.Wait(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			w.check(t, s, r)
		}
		j.last = nil
		s := modelSession(t)
		o := w.options(t)
		o.Journal, o.Reactive = j, children
		w.ended = map[string]bool{}
		last, err := flow.Run(context.Background(), s, g, o)
		if err != nil {
			t.Fatal(err)
		}
		w.check(t, s, last)
		want := w.states()
		for _, x := range w.nodes {
			if want[x.id] == flow.Completed && !x.gate && len(x.spawns) > 0 {
				want[x.spawns[0].id] = flow.Completed
			}
		}
		if got := statesOf(last); !maps.Equal(got, want) {
			t.Fatalf("ended as %v, want %v", got, want)
		}
		for node, n := range w.done {
			if n > 1 {
				t.Fatalf("node %s has done its work %d times", node, n)
			}
		}
	})
}

// S-57: nodes that ask for others at random places, cycles and all: what is accepted ends once, after what it waits for; what is
// refused is listed; nothing hangs.
func TestModelSpawns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		ids := []string{"s0", "s1", "s2", "s3", "s4", "s5"}
		for _, x := range w.nodes {
			ids = append(ids, x.id)
		}
		some := rapid.SliceOfN(rapid.SampledFrom(ids), 0, 2)
		asked := 0
		for i := range w.nodes {
			x := &w.nodes[i]
			for range rapid.IntRange(0, 2).Draw(t, "wishes") {
				x.spawns = append(x.spawns, wish{
					id: rapid.SampledFrom(ids[:6]).Draw(t, "child"), after: some.Draw(t, "after"), before: some.Draw(t, "before"),
					alone: rapid.Bool().Draw(t, "alone"), what: rapid.SampledFrom([]string{"", "", "", "", "null", "error", "panic"}).Draw(t, "what"),
				})
			}
		}
		s := modelSession(t)
		o := w.options(t)
		most := rapid.IntRange(0, 8).Draw(t, "most")
		placed := map[string]wish{}
		o.Reactive = flow.On(func(ctx context.Context, x wish) (*flow.Child, error) {
			c, err := granted(ctx, x)
			if c != nil {
				c.Do = func(_ context.Context, in flow.In) (any, error) {
					w.mu.Lock()
					defer w.mu.Unlock()
					for _, o := range in.Before {
						if !w.ended[o.Node] {
							w.early = x.id
						}
					}
					placed[x.id] = x
					return nil, nil
				}
			}
			return c, err
		}).Max(most)
		r, err := flow.Run(context.Background(), s, w.graph(t), o)
		if err != nil {
			t.Fatal(err)
		}
		w.check(t, s, r)
		for _, x := range w.nodes {
			if slices.Contains(r.Completed, x.id) && !x.gate {
				asked += len(x.spawns)
			}
		}
		if len(r.Spawned)+r.Refusals != asked || len(r.Spawned) > most {
			t.Fatalf("%d spawned, %d refused, %d asked, at most %d", len(r.Spawned), r.Refusals, asked, most)
		}
		all := notices(s)
		for id, x := range placed {
			for _, before := range x.after {
				if end := slices.IndexFunc(all, func(n string) bool {
					kind, node, _ := strings.Cut(n, " ")
					return node == before && kind != "queued" && kind != "started" && kind != "spawned" && kind != "escalated"
				}); end < 0 || end > slices.Index(all, "started "+id) {
					t.Fatalf("%s started before %s had ended: %v", id, before, all)
				}
			}
		}
	})
}
