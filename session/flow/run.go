package flow

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"soma/ident"
	"soma/session"
)

// Run works the graph through on the session's branches and returns when every node has ended. That nodes have failed is no error:
// it stands in the result. The error is what keeps a flow from starting (see Start), that of a context that ended before the flow,
// or that of a journal; in the last two cases the result says how far it came. Run returns when the nodes do: ending the context asks
// them to.
func Run(ctx context.Context, s *session.Session, g *Graph, o Options) (*Result, error) {
	h, err := Start(ctx, s, g, o)
	if err != nil {
		return nil, err
	}
	<-h.run.done
	return h.run.outcome()
}

// Start begins a flow and returns a handle to it. All nodes have been announced and have their branches then. The flow ends by itself,
// or when the context ends or Cancel is called, once the nodes that run have returned.
//
// The error wraps [session.ErrNotFound] for a branch that is no member, [session.ErrNoBranch] where the session has no default and a
// node needs one, [session.ErrInvalid] for options or a graph that are not usable, [session.ErrPanic] where BranchCreated panics.
// Nothing has been started or announced then, and the session has no clones of the flow.
func Start(ctx context.Context, s *session.Session, g *Graph, o Options) (*Handle, error) {
	switch {
	case s == nil || g == nil:
		return nil, fmt.Errorf("cannot start a flow: %w arguments: no session or no graph", session.ErrInvalid)
	case o.Concurrency < 0:
		return nil, fmt.Errorf("cannot start a flow: %w concurrency %d", session.ErrInvalid, o.Concurrency)
	case o.Concurrency == 0:
		o.Concurrency = DefaultConcurrency
	}
	if !shallow(o.Context, deepest) {
		return nil, fmt.Errorf("cannot start a flow: %w context: more than %d maps in each other", session.ErrInvalid, deepest)
	}
	r := &run{
		id: ident.New(time.Now()), sess: s, o: o, plan: newPlan(g), shared: copied(o.Context), done: make(chan struct{}),
		unobserve: func() {},
		workers:   1, // this goroutine: the flow is not over before it has begun
	}
	if err := r.settle(); err != nil {
		return nil, fmt.Errorf("cannot start a flow: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	r.stop = cancel
	r.hire = func(work func(context.Context)) { go work(ctx) }
	for _, v := range r.plan.all {
		r.tellQueued(ctx, v)
	}
	r.mu.Lock()
	r.forget = context.AfterFunc(ctx, func() { r.cancel(context.Cause(ctx)) })
	r.mu.Unlock()
	if o.Reactive.build != nil {
		r.unobserve = o.Reactive.observe(s.Observer(), func(ctx context.Context, request any) { r.ask(ctx, request) })
	}
	r.mu.Lock()
	for _, v := range r.plan.all {
		r.offer(v)
	}
	r.workers--
	r.staff(0)
	r.mu.Unlock()
	r.ifOver()
	return &Handle{r}, nil
}

// run is one flow under way.
type run struct {
	id        ident.ID
	sess      *session.Session
	o         Options
	def       *session.Branch
	hire      func(work func(context.Context)) // starts a goroutine under the flow's context
	stop      func()                           // ends the flow's context
	forget    func() bool
	unobserve func()
	done      chan struct{} // closed when everything has ended

	mu       sync.Mutex // guards what follows; held for no code of the program
	plan     *plan
	phase    phase
	ready    queue
	held     []*vertex
	desk     []notice // what the clerk is to tell, in order
	clerk    bool
	workers  int
	shared   map[string]any // never changed in place
	accepted int
	refused  []Refusal
	refusals int
	vetoed   map[string][]string
	err      error         // what ended the flow before its time
	faults   []error       // panics of Progress, the first ones
	ends     int           // final notices
	moved    chan struct{} // closed when another node has ended; nil while nobody waits for that
}

// queue is first in, first out.
type queue struct {
	list []*vertex
	head int
}

func (q *queue) len() int { return len(q.list) - q.head }

func (q *queue) push(v *vertex) { q.list = append(q.list, v) }

func (q *queue) pop() *vertex {
	v := q.list[q.head]
	q.list[q.head] = nil
	if q.head++; q.head == len(q.list) {
		q.list, q.head = q.list[:0], 0
	}
	return v
}

// settle gives all nodes their branches. Clones join the session together; if that is not to be, they leave again.
func (r *run) settle() error {
	def, clones, err := r.plan.branches(r.sess, r.o.Branch)
	if err != nil {
		return err
	}
	r.def = def
	if err := r.sess.Include(clones...); err != nil {
		return err
	}
	for _, b := range clones {
		if err := r.created(b); err != nil {
			for _, b := range clones {
				_, gone := r.sess.Remove(b.ID()) // who is not a member any more has been removed by the program
				err = errors.Join(err, skipErr(gone, session.ErrNotFound))
			}
			return err
		}
	}
	return nil
}

func skipErr(err, known error) error {
	if errors.Is(err, known) {
		return nil
	}
	return err
}

func (r *run) created(b *session.Branch) error {
	if r.o.BranchCreated == nil {
		return nil
	}
	return guard("BranchCreated", func() error {
		r.o.BranchCreated(b)
		return nil
	})
}

// offer makes a node that waits for nobody ready, or lets it rest while the flow is paused. mu is held.
func (r *run) offer(v *vertex) {
	switch {
	case v.waits > 0 || v.notices > 0 || v.state != waiting:
	case r.phase == going:
		v.state = v.state.next(freed)
		r.ready.push(v)
	case r.phase == pausing:
		r.rest(v)
	}
}

// rest holds a node back, and has that told once in each pause. mu is held.
func (r *run) rest(v *vertex) {
	v.state = v.state.next(paused)
	r.held = append(r.held, v)
	r.note(v, isPaused)
}

// staff starts goroutines for what is to be done, as far as there are slots; own is 1 for a worker that will take a node itself. mu
// is held.
func (r *run) staff(own int) {
	if r.phase == going {
		for n := r.ready.len() - own; n > 0 && r.workers < r.o.Concurrency; n-- {
			r.workers++
			r.hire(r.work)
		}
	}
	if len(r.desk) > 0 && !r.clerk {
		r.clerk = true
		r.hire(r.tellAll)
	}
}

// cancel ends what has not begun, and asks what runs to end. why is nil where the handle wants it so. It is false if the flow has
// ended or is being cancelled already.
func (r *run) cancel(why error) bool {
	r.mu.Lock()
	next, ok := r.phase.next(toCancel)
	if ok {
		r.phase, r.err = next, why
		for _, v := range r.plan.all {
			if !v.state.final() && v.state != running {
				r.plan.end(v, Cancelled, func(*vertex) {})
				r.note(v, isEnded)
			}
		}
		r.ready, r.held = queue{}, nil
		r.staff(0)
		r.told()
	}
	r.mu.Unlock()
	if ok {
		r.forget()
		r.stop()
		r.ifOver()
	}
	return ok
}

// told wakes up who follows the ends of nodes. mu is held.
func (r *run) told() {
	if r.moved != nil {
		close(r.moved)
		r.moved = nil
	}
}

// ifOver ends the flow when nothing is left to be done.
func (r *run) ifOver() {
	r.mu.Lock()
	idle := r.workers == 0 && !r.clerk && len(r.desk) == 0 && r.plan.over()
	next, ok := r.phase.next(toEnd)
	if idle && ok {
		r.phase = next
		r.told()
	}
	r.mu.Unlock()
	if idle && ok {
		r.unobserve()
		r.forget()
		r.stop()
		close(r.done)
	}
}
