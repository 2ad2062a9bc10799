package durable_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/engine"
	"soma/tests/durable/counter"
)

// deed is what a delivery makes its neuron do; its kids follow from it. Names are unique in a program.
type deed struct {
	Name    string `json:"name"`
	To      int    `json:"to"`
	How     how    `json:"how"`
	Fails   int    `json:"fails,omitempty"` // attempts that fail first
	Refused bool   `json:"refused,omitempty"`
	Kids    []deed `json:"kids,omitempty"`
}

// how a kid reaches its neuron.
type how string

const (
	mail   how = "mail"
	signal how = "signal"
	emit   how = "emit"
	alarm  how = "alarm"
	work   how = "work" // an execution, idempotent
	once   how = "once" // an execution that is never run again
)

var (
	deedType  = neuron.NewType[deed]("model.deed.v1")
	factType  = neuron.NewType[deed]("model.fact.v1")
	endType   = neuron.NewType[neuron.Ended]("model.end.v1")
	sumType   = neuron.NewType[int64]("model.sum.v1")
	errTrial  = errors.New("this attempt fails")
	errFault  = errors.New("the store fails")
	endedType = "neuron.delivery_ended.v1" // what the runtime itself sends
)

// phase is one part of a program: its roots are delivered at once, and then something happens to the nodes.
type phase struct {
	Roots  []root
	Then   fate
	Commit int64  // kill: before this commit of the node
	Node   int    // whose fate it is
	Places uint64 // move: the places whose numbers, modulo 64, are set
	Again  bool   // all that was delivered before is delivered once more
}

type root struct {
	Deed   deed
	Accept bool
}

type fate string

const (
	none fate = "none"
	stop fate = "stop"
	kill fate = "kill"
	give fate = "give" // places move to the other node in order
	// steal: the other node takes all places while this one runs on and does not know, until the end of the next phase.
	steal fate = "steal"
)

// programs draws one. Deeds have few kids, so that shrinking leads to what matters.
func programs(fates []fate, nodes int) *rapid.Generator[[]phase] {
	return rapid.Custom(func(t *rapid.T) []phase {
		var phases []phase
		for p := range rapid.IntRange(1, 4).Draw(t, "phases") {
			ph := phase{Then: rapid.SampledFrom(fates).Draw(t, "then"), Again: rapid.Bool().Draw(t, "again")}
			for r := range rapid.IntRange(0, 5).Draw(t, "roots") {
				d := drawDeed(t, fmt.Sprintf("%d-%d", p, r), 3)
				d.How = mail
				ph.Roots = append(ph.Roots, root{d, rapid.Bool().Draw(t, "accept")})
			}
			if ph.Then == kill {
				ph.Commit = rapid.Int64Range(1, 30).Draw(t, "commit")
			}
			if nodes > 1 {
				ph.Node = rapid.IntRange(0, nodes-1).Draw(t, "node")
				ph.Places = rapid.Uint64().Draw(t, "places")
			}
			phases = append(phases, ph)
		}
		return phases
	})
}

func drawDeed(t *rapid.T, name string, depth int) deed {
	d := deed{
		Name: name, To: rapid.IntRange(0, 2).Draw(t, "to"), How: rapid.SampledFrom([]how{mail, mail, signal, emit, alarm, work, once}).Draw(t, "how"),
		Fails: rapid.SampledFrom([]int{0, 0, 0, 1, 3}).Draw(t, "fails"), Refused: rapid.IntRange(0, 9).Draw(t, "refused") == 9,
	}
	if depth > 0 {
		for k := range rapid.IntRange(0, 3).Draw(t, "kids") {
			d.Kids = append(d.Kids, drawDeed(t, fmt.Sprint(name, ".", k), depth-1))
		}
	}
	return d
}

// model is what a program must come to, whatever happens to its nodes.
type model struct {
	sums    map[neuron.ID]int64
	in, out map[neuron.ID]map[string]uint64
}

func expect(owner string, phases []phase) *model {
	m := &model{map[neuron.ID]int64{}, map[neuron.ID]map[string]uint64{}, map[neuron.ID]map[string]uint64{}}
	for _, p := range phases {
		for _, r := range p.Roots {
			m.handled(owner, neuron.ID{}, target(owner, neuron.ID{}, &r.Deed), &r.Deed)
		}
	}
	return m
}

func tally(m map[neuron.ID]map[string]uint64, id neuron.ID, alias string) {
	if m[id] == nil {
		m[id] = map[string]uint64{}
	}
	m[id][alias]++
}

// target is the neuron that a deed comes to.
func target(owner string, from neuron.ID, d *deed) neuron.ID {
	switch d.How {
	case alarm, work, once:
		return from
	case emit:
		return neuron.ID{Owner: owner, Kind: "ear", Key: fmt.Sprint("e", d.To)}
	}
	return neuron.ID{Owner: owner, Kind: "doer", Key: fmt.Sprint("n", d.To)}
}

// handled adds a deed with all that follows from it.
func (m *model) handled(owner string, from, at neuron.ID, d *deed) {
	m.sums[at] += 0
	switch d.How {
	case emit:
		tally(m.in, at, factType.Alias())
	case work, once:
		tally(m.in, at, endType.Alias())
	default:
		tally(m.in, at, deedType.Alias())
	}
	if d.Refused {
		if from != (neuron.ID{}) { // the sender's own journals tell of it
			tally(m.in, from, endedType)
			tally(m.out, from, endedType)
		}
		return
	}
	m.sums[at] += digest(d.Name)
	for i := range d.Kids {
		k := &d.Kids[i]
		switch k.How {
		case emit:
			tally(m.out, at, factType.Alias())
		case work, once:
		default:
			tally(m.out, at, deedType.Alias())
		}
		m.handled(owner, at, target(owner, at, k), k)
	}
}

// digest makes a sum that shows which deeds are in it.
func digest(name string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return int64(h.Sum64() >> 8)
}

// actors run deeds. They outlive the nodes, as the world outside does.
type actors struct {
	mu    sync.Mutex
	tries map[string]int
	runs  map[ident.ID]deed // executions
}

func (a *actors) kinds() []*neuron.Kind {
	doer, ear := neuron.NewKind("doer"), neuron.NewKind("ear")
	for _, k := range []*neuron.Kind{doer, ear} {
		neuron.Handle(k, deedType, a.do)
		neuron.Handle(k, factType, a.do)
		neuron.Handle(k, endType, func(t *neuron.Turn, end neuron.Ended) error {
			a.mu.Lock()
			d, ok := a.runs[end.ID.WithAttempt(0)]
			a.mu.Unlock()
			if !ok {
				return neuron.Settle(fmt.Errorf("nobody has started %s", end.ID))
			}
			return a.do(t, d)
		})
	}
	neuron.Broadcast(ear, factType, func(_ string, d deed) (string, bool) { return fmt.Sprint("e", d.To), true })
	return []*neuron.Kind{doer, ear}
}

func (a *actors) do(t *neuron.Turn, d deed) error {
	a.mu.Lock()
	a.tries[d.Name]++
	fails := a.tries[d.Name] <= d.Fails
	a.mu.Unlock()
	if fails {
		return errTrial
	}
	for _, k := range d.Kids {
		if err := a.stage(t, k); err != nil {
			return err
		}
	}
	sum, err := neuron.State(t, sumType, nil)
	if err != nil {
		return err
	}
	if err := neuron.SetState(t, sumType, sum+digest(d.Name)); err != nil {
		return err
	}
	if d.Refused { // after all: what was staged must go
		return neuron.Settle(errTrial)
	}
	return nil
}

func (a *actors) stage(t *neuron.Turn, k deed) (err error) {
	to := target(t.Self().Owner, t.Self(), &k)
	switch k.How {
	case mail:
		err = neuron.Send(t, to, deedType, k)
	case signal:
		err = neuron.Send(t, to, deedType, k, neuron.OnLane(neuron.Signal))
	case emit:
		err = neuron.Emit(t, factType, k)
	case alarm:
		_, err = neuron.After(t, time.Millisecond, deedType, k)
	default:
		policy := neuron.Idempotent
		if k.How == once {
			policy = neuron.Once
		}
		id := ident.Derive(t.Delivery().ID, k.Name).WithAttempt(0)
		a.mu.Lock()
		a.runs[id] = k
		a.mu.Unlock()
		t.Start(neuron.Execution{ID: id, Kind: "work", Policy: policy, Input: json.RawMessage("{}"), Then: endType.Alias()})
	}
	return err
}

// mortal lets nothing reach the store any more from its n-th commit on, as a SIGKILL does.
type mortal struct {
	neuron.Store
	at      atomic.Int64
	dead    atomic.Bool
	commits atomic.Int64
}

func (m *mortal) Commit(ctx context.Context, f neuron.Fence, group []*neuron.Record) error {
	if m.commits.Add(1) == m.at.Load() {
		m.dead.Store(true)
	}
	if m.dead.Load() {
		return neuron.ErrFenced
	}
	return m.Store.Commit(ctx, f, group)
}

// stage is where programs are played: the nodes, and how they come to places of their stores.
type stage struct {
	t      *rapid.T
	ctx    context.Context
	arena  arena
	actors *actors
	nodes  []*actor
	lot    *rand.Rand // of the pump

	mu    sync.Mutex
	hints []ident.ID
	came  chan struct{} // capacity 1
}

// arena is a kind of database.
type arena interface {
	nodes() int
	open(ctx context.Context, node int) (neuron.Store, error) // anew at each life
	// take gives all those places to the node, whoever holds them; where there is one node it is not called.
	take(ctx context.Context, node int, s neuron.Store, f neuron.Fence, places neuron.PlaceSet) (map[neuron.Place]neuron.Taken, error)
	free(ctx context.Context, node int, s neuron.Store, f neuron.Fence, places neuron.PlaceSet) error
}

// actor is one life of a node.
type actor struct {
	*engine.Engine
	store  neuron.Store
	mortal *mortal
	failed atomic.Bool // its store did
}

func modelLimits() neuron.Limits {
	l := counter.Small()
	l.DedupeWindow = 4096 // longer than any program
	l.BackoffMax = 4 * time.Millisecond
	l.Crashes = 1000
	return l
}

func (s *stage) must(err error) {
	if err != nil {
		s.t.Helper()
		s.t.Fatal(err)
	}
}

// live begins a life of a node, which ends before its n-th commit, 0 for none.
func (s *stage) live(node int, commit int64) {
	store, err := s.arena.open(s.ctx, node)
	s.must(err)
	m := &mortal{Store: store}
	m.at.Store(commit)
	a := &actor{store: store, mortal: m}
	a.Engine, err = engine.New(engine.Options{
		Fatal: func(error) { a.failed.Store(true) },
		Store: m, Kinds: s.actors.kinds(), Types: []string{deedType.Alias(), factType.Alias(), endType.Alias()}, Node: fmt.Sprint("node", node),
		Adapters: map[string]neuron.Adapter{"work": counter.Work{}}, Limits: modelLimits(),
		Elsewhere: func(hints []neuron.Hint) {
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, h := range hints {
				s.hints = append(s.hints, h.ID)
			}
			select {
			case s.came <- struct{}{}:
			default:
			}
		},
	})
	s.must(err)
	if err := a.Start(s.ctx); errors.Is(err, errFault) {
		a.failed.Store(true)
	} else if err != nil && !m.dead.Load() {
		s.t.Fatal(err)
	}
	s.set(node, a)
}

// revive begins a new life of the one node where its store has failed. Of several, phases say what becomes of them.
func (s *stage) revive() {
	if len(s.nodes) > 1 {
		return
	}
	for i, a := range s.nodes {
		for a != nil && a.failed.Load() {
			s.bury(i)
			s.live(i, 0)
			a = s.nodes[i]
		}
	}
}

func (s *stage) set(node int, a *actor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes[node] = a
}

func (s *stage) bury(node int) {
	a := s.nodes[node]
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), 20*time.Second)
	defer cancel()
	s.set(node, nil)
	s.must(errors.Join(a.Stop(ctx), a.store.Close()))
}

// gain gives places to a node.
func (s *stage) gain(node int, places neuron.PlaceSet) {
	a := s.nodes[node]
	taken, err := s.arena.take(s.ctx, node, a.store, a.Fence(), places)
	s.must(err)
	if err := a.Gain(s.ctx, taken); err != nil && !a.mortal.dead.Load() {
		s.t.Fatal(err)
	}
}

// pump passes hints on, in any order, and loses some, until the channel is closed.
func (s *stage) pump(done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-s.came:
		}
		s.mu.Lock()
		hints := s.hints
		s.hints = nil
		nodes := slices.Clone(s.nodes)
		s.mu.Unlock()
		s.lot.Shuffle(len(hints), func(i, j int) { hints[i], hints[j] = hints[j], hints[i] })
		for _, id := range hints {
			for _, a := range nodes {
				if a != nil && s.lot.IntN(3) > 0 {
					_ = a.Wake(s.ctx, []ident.ID{id}) // it may be dead
				}
			}
		}
	}
}

// deliver brings the roots to whoever takes them and returns those that nobody has answered.
func (s *stage) deliver(todo []delivery) (open []delivery) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	for _, d := range todo {
		wg.Go(func() {
			for _, a := range s.nodes {
				var err error
				if d.accept {
					err = a.Accept(s.ctx, d.Delivery)
				} else {
					err = a.Deliver(s.ctx, d.Delivery)
				}
				var refusal *neuron.Refusal
				if err == nil || errors.As(err, &refusal) {
					return
				}
			}
			mu.Lock()
			defer mu.Unlock()
			open = append(open, d)
		})
	}
	wg.Wait()
	return open
}

type delivery struct {
	neuron.Delivery
	accept bool
}

// play runs a program to its end and compares what it has come to.
func play(t *rapid.T, ctx context.Context, a arena, owner string, phases []phase) {
	s := &stage{
		t: t, ctx: ctx, arena: a, actors: &actors{tries: map[string]int{}, runs: map[ident.ID]deed{}}, nodes: make([]*actor, a.nodes()),
		lot: rand.New(rand.NewPCG(1, uint64(len(phases)))), came: make(chan struct{}, 1),
	}
	several := a.nodes() > 1
	for i := range s.nodes {
		s.live(i, phases[0].kills(i))
	}
	if several {
		s.gain(0, neuron.AllPlaces())
	}
	done := make(chan struct{})
	var pump sync.WaitGroup
	pump.Go(func() { s.pump(done) })
	quit := sync.OnceFunc(func() { close(done); pump.Wait() })
	defer quit()
	var todo, all []delivery
	robbed := -1
	for n, p := range append(phases, phase{Again: true}) {
		for _, r := range p.Roots {
			d, err := deedType.New(target(owner, neuron.ID{}, &r.Deed), r.Deed, time.Now())
			s.must(err)
			todo = append(todo, delivery{d, r.Accept})
		}
		had := len(all)
		all = append(all, todo[len(todo)-len(p.Roots):]...)
		todo = s.deliver(todo)
		if p.Again {
			s.deliver(all[:had])
		}
		s.revive()
		next := phase{}
		if n+1 < len(phases) {
			next = phases[n+1]
		}
		if robbed >= 0 {
			s.bury(robbed)
			s.live(robbed, 0)
			robbed = -1
		}
		other := (p.Node + 1) % len(s.nodes)
		switch p.Then {
		case give:
			s.give(p, other)
		case steal:
			robbed = p.Node
			s.gain(other, s.nodes[p.Node].Holding())
		case kill, stop:
			if p.Then == kill {
				s.nodes[p.Node].mortal.dead.Store(true)
			}
			held := s.nodes[p.Node].Holding()
			s.bury(p.Node)
			s.live(p.Node, next.kills(p.Node))
			if several {
				s.gain(other, held)
			}
			continue
		}
		if m := s.nodes[next.Node].mortal; next.Then == kill && next.Node != robbed {
			m.at.Store(m.commits.Load() + next.Commit)
		}
	}
	for end := time.Now().Add(patience); len(todo) > 0; {
		s.revive()
		if todo = s.deliver(todo); time.Now().After(end) {
			t.Fatalf("%d deliveries are not taken", len(todo))
		}
	}
	quit()
	s.settle()
	s.compare(owner, phases)
	for i := range s.nodes {
		s.bury(i)
	}
}

// kills returns before which commit the phase kills the node, 0 for none.
func (p *phase) kills(node int) int64 {
	if p.Then == kill && p.Node == node {
		return p.Commit
	}
	return 0
}

// give moves places in order.
func (s *stage) give(p phase, other int) {
	from := s.nodes[p.Node]
	var places neuron.PlaceSet
	for i := range places {
		places[i] = p.Places
	}
	before := from.Fence() // a release takes its places out
	given := from.Release(places, neuron.Places)
	s.must(s.arena.free(s.ctx, p.Node, from.store, before, given))
	s.gain(other, given)
}

// settle waits until nothing is on its way; hints reach their nodes, and what has none is found by a sweep.
func (s *stage) settle() {
	ctx, cancel := context.WithTimeout(s.ctx, 30*time.Second)
	defer cancel()
	for {
		for _, a := range s.nodes {
			err := errors.Join(a.Sweep(ctx), a.Quiet(ctx))
			if errors.Is(err, errFault) {
				s.revive()
				continue
			}
			if err != nil {
				s.t.Fatalf("not quiet: %v, %+v", err, a.Stats())
			}
		}
		s.mu.Lock()
		hints := s.hints
		s.hints = nil
		s.mu.Unlock()
		rows, err := s.nodes[0].store.Outbox(ctx, neuron.AllPlaces(), ident.ID{}, 1)
		s.must(err)
		if len(rows) == 0 && len(hints) == 0 {
			return
		}
		for _, a := range s.nodes {
			s.must(a.Wake(ctx, hints))
		}
		if len(rows) > 0 && rows[0].Alarm { // it rings soon
			timer := time.NewTimer(time.Millisecond)
			select {
			case <-timer.C:
			case <-ctx.Done():
				s.t.Fatalf("row %+v stays", rows[0])
			}
		}
	}
}

func (s *stage) compare(owner string, phases []phase) {
	m := expect(owner, phases)
	store := s.nodes[0].store
	if err := counter.Check(s.ctx, store, m.sums); err != nil {
		s.t.Fatalf("%v", err)
	}
	for id := range m.sums {
		n, err := store.Neuron(s.ctx, id)
		s.must(err)
		if !maps.Equal(n.Tallies.In, m.in[id]) || !maps.Equal(n.Tallies.Out, m.out[id]) {
			s.t.Fatalf("%s: tallies %v, want in %v, out %v", id, n.Tallies, m.in[id], m.out[id])
		}
	}
}

var owners atomic.Int64

// models is how many tests share the time that is given.
const models = 4

// checkModel plays random programs on an arena.
func checkModel(t *testing.T, fates []fate, make func() arena) {
	nodes := make().nodes()
	began := time.Now()
	for {
		rapid.Check(t, func(rt *rapid.T) {
			phases := programs(fates, nodes).Draw(rt, "program")
			play(rt, t.Context(), make(), fmt.Sprint("owner", owners.Add(1)), phases)
		})
		if time.Since(began) >= *soakFor/models || t.Failed() {
			return
		}
	}
}
