package flow

import (
	"context"
	"errors"
	"fmt"

	"soma/session"
)

// work takes nodes that are ready until there is none, one after another.
func (r *run) work(ctx context.Context) {
	var v *vertex
	defer func() {
		if v != nil { // the program has ended this goroutine from within a node or a handler
			if !r.hasEnded(v) {
				r.conclude(ctx, v, ending{state: Failed, err: fmt.Errorf("the node %w: it ended its goroutine", session.ErrPanic)})
			}
			r.leave()
		}
		r.ifOver()
	}()
	for v = r.take(); v != nil; v = r.take() {
		r.perform(ctx, v)
	}
}

// take returns the next node to run; nil where the worker may go.
func (r *run) take() *vertex {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.phase != going || r.ready.len() == 0 {
		r.workers--
		return nil
	}
	v := r.ready.pop()
	v.state = v.state.next(taken)
	v.attempt++
	return v
}

func (r *run) hasEnded(v *vertex) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return v.state.final()
}

// leave is what take does for a worker that cannot ask any more.
func (r *run) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.workers--
	r.staff(0)
}

// ending is what has become of a node.
type ending struct {
	state    State
	result   any
	err      error
	reason   string
	rejects  bool
	add      map[string]any // to the context
	restored bool
	again    *Escalation // no end: another attempt
	args     any
}

func (r *run) perform(ctx context.Context, v *vertex) {
	end, known := r.restore(ctx, v)
	if !known {
		end = r.attempt(ctx, v)
	}
	if end.again == nil {
		r.conclude(ctx, v, end)
		return
	}
	r.tellEscalated(ctx, v, end.again)
	r.mu.Lock()
	v.state, v.node.Args = v.state.next(again), end.args
	if r.phase == cancelling {
		r.mu.Unlock()
		r.conclude(ctx, v, ending{state: Cancelled, err: context.Canceled})
		return
	}
	r.offer(v)
	r.staff(1)
	r.mu.Unlock()
}

// restore asks the journal how the node has ended in an earlier run.
func (r *run) restore(ctx context.Context, v *vertex) (ending, bool) {
	if r.o.Journal == nil || v.attempt > 1 {
		return ending{}, false
	}
	var rec Record
	var found bool
	err := guard("the journal", func() (err error) {
		rec, found, err = r.o.Journal.Done(ctx, v.node.ID)
		return err
	})
	if err != nil {
		err = fmt.Errorf("cannot look up node %q: %w", v.node.ID, err)
		r.cancel(err)
		return ending{state: Cancelled, err: err}, true
	}
	end := ending{state: rec.State, restored: true}
	switch {
	case !found, r.o.RetryFailed && rec.State != Completed:
		return ending{}, false
	case rec.State == Completed:
		end = r.judge(v, rec.Result)
		end.restored = true
		for _, request := range rec.Requests {
			r.spawn(ctx, v, request)
		}
	case rec.State == Failed:
		end.err, end.rejects = errors.New(rec.Error), v.node.Gate
	case rec.State == Skipped:
		end.reason = rec.Reason
	default:
		err := fmt.Errorf("cannot look up node %q: %w record: it is %s", v.node.ID, session.ErrInvalid, rec.State)
		r.cancel(err)
		return ending{state: Cancelled, err: err}, true
	}
	return end, true
}

// attempt decides whether the node runs, and lets it.
func (r *run) attempt(ctx context.Context, v *vertex) ending {
	if err := ctx.Err(); err != nil {
		return r.failed(ctx, v, err)
	}
	in := In{Flow: r.id, Node: v.node.ID, Args: v.node.Args, Attempt: v.attempt}
	r.mu.Lock()
	in.shared = r.shared
	r.mu.Unlock()
	if v.attempt == 1 {
		pass, err := passes(ctx, v, in.shared)
		if err != nil {
			return r.failed(ctx, v, err)
		}
		if !pass {
			return ending{state: Skipped, reason: "no edge passes"}
		}
		if err := r.prepare(ctx, v); err != nil {
			return r.failed(ctx, v, err)
		}
	}
	if err := ctx.Err(); err != nil { // a condition, or who was told of the branch, has cancelled the flow
		return r.failed(ctx, v, err)
	}
	in.Branch, in.Before = v.branch, before(v)
	r.tellStarted(ctx, v)
	result, err := r.call(ctx, v, in)
	if e := escalation(result, err); e != nil {
		return r.escalate(ctx, v, in, e)
	}
	if err != nil {
		return r.failed(ctx, v, err)
	}
	end := r.judge(v, result)
	if end.state == Completed && r.o.Reactive.find != nil {
		for _, request := range r.o.Reactive.find(result) {
			r.spawn(ctx, v, request)
		}
	}
	return end
}

// failed is the end by an error, which is no failure where the flow has been asked to end.
func (r *run) failed(ctx context.Context, v *vertex, err error) ending {
	if ctx.Err() != nil {
		r.cancel(context.Cause(ctx)) // it may be known here first
		return ending{state: Cancelled, err: err}
	}
	return ending{state: Failed, err: err, rejects: v.node.Gate}
}

// passes asks the conditions of a node. It runs if one edge passes, or if there is none.
func passes(ctx context.Context, v *vertex, shared map[string]any) (bool, error) {
	pass := len(v.in) == 0
	for _, e := range v.in {
		s := e.from.state
		if s != Completed && (s != Failed || e.from.node.OnFailure == SkipDependents) {
			continue
		}
		holds := true
		if e.when != nil {
			err := guard("a condition", func() (err error) {
				holds, err = e.when.Holds(ctx, Passage{e.from.outcome(), shared})
				return err
			})
			if err != nil {
				return false, fmt.Errorf("cannot decide about the edge from %q: %w", e.from.node.ID, err)
			}
		}
		pass = pass || holds
	}
	return pass, nil
}

func before(v *vertex) []Outcome {
	if len(v.in) == 0 {
		return nil
	}
	list := make([]Outcome, 0, len(v.in))
	var seen map[*vertex]bool
	if len(v.in) > 1 {
		seen = make(map[*vertex]bool, len(v.in))
	}
	for _, e := range v.in {
		if !seen[e.from] {
			list = append(list, e.from.outcome())
			if seen != nil {
				seen[e.from] = true
			}
		}
	}
	return list
}

// prepare sees to the node's branch: a spawned one gets its clone now, and one that inherits its messages.
func (r *run) prepare(ctx context.Context, v *vertex) error {
	if v.branch == nil {
		origin := r.def
		if !v.alone && v.emitter.branch != nil {
			origin = v.emitter.branch
		}
		if origin == nil {
			return session.ErrNoBranch
		}
		v.branch = origin.Clone()
		if err := r.sess.Include(v.branch); err != nil {
			return err
		}
		if err := r.created(v.branch); err != nil {
			return err
		}
	}
	if v.node.Inherit && len(v.in) > 0 {
		if from := v.in[0].from; from.branch != nil {
			if err := v.branch.Inherit(from.branch); err != nil {
				return err
			}
		}
	}
	if v.spawned && r.o.Reactive.setup != nil {
		return guard("the set-up", func() error { return r.o.Reactive.setup(ctx, v.branch, v.node) })
	}
	return nil
}

// visit is what the context of a node says.
type visit struct {
	run *run
	v   *vertex
	in  In
}

type visitKey struct{}

// Of returns what the node sees for which the context is: an operation by name so has what a function is given. False outside of
// flows.
func Of(ctx context.Context) (In, bool) {
	at, ok := ctx.Value(visitKey{}).(*visit)
	if !ok {
		return In{}, false
	}
	return at.in, true
}

func (r *run) call(ctx context.Context, v *vertex, in In) (result any, err error) {
	ctx = context.WithValue(session.WithOp(ctx, v.node.ID), visitKey{}, &visit{r, v, in})
	// Within a run of the same branch, as when an operation runs a flow, nobody else catches a panic.
	err = guard("the node", func() (err error) {
		if v.node.Do == nil {
			result, err = v.branch.RunOperation(ctx, v.node.Operation, v.node.Args)
			return err
		}
		result, err = v.branch.Run(ctx, v.node.ID, func(ctx context.Context) (any, error) { return v.node.Do(ctx, in) })
		return err
	})
	return result, err
}

// judge says what a result means.
func (r *run) judge(v *vertex, result any) ending {
	add, err := contribution(result)
	if err != nil {
		return ending{state: Failed, err: err, rejects: v.node.Gate}
	}
	end := ending{state: Completed, result: result, add: add}
	if v.node.Gate {
		answer, err := verdict(result)
		if err != nil {
			return ending{state: Failed, err: err, rejects: true}
		}
		end.rejects, end.reason = answer.Reject, answer.Reason
	}
	return end
}

// escalate grants another attempt, or lets the node fail.
func (r *run) escalate(ctx context.Context, v *vertex, in In, e *Escalation) ending {
	if v.attempt > v.node.Retries {
		return r.failed(ctx, v, e)
	}
	args := v.node.Args
	if e.Args != nil {
		args = e.Args
	}
	if r.o.Escalate != nil {
		err := guard("Escalate", func() (err error) {
			args, err = r.o.Escalate(ctx, in, e)
			return err
		})
		if err != nil {
			return r.failed(ctx, v, err)
		}
	}
	return ending{again: e, args: args}
}

// conclude ends a node: the journal first, then who is told, then the dependents.
func (r *run) conclude(ctx context.Context, v *vertex, end ending) {
	r.mu.Lock()
	v.result, v.err, v.reason, v.again, v.rejects = end.result, end.err, end.reason, end.restored, end.rejects
	requests := v.requests
	r.mu.Unlock()
	if r.o.Journal != nil && !end.restored && end.state != Cancelled {
		rec := Record{State: end.state, Result: end.result, Requests: requests}
		if end.state == Skipped {
			rec.Reason = end.reason
		}
		if end.err != nil {
			rec.Error = end.err.Error()
		}
		err := guard("the journal", func() error { return r.o.Journal.Record(context.WithoutCancel(ctx), v.node.ID, rec) })
		if err != nil {
			r.cancel(fmt.Errorf("cannot record node %q: %w", v.node.ID, err))
		}
	}
	defer r.release(v, end) // whatever becomes of this goroutine
	r.tellEnd(ctx, v, end.state)
}

// release gives a node its final state, and lets go on who has waited for it.
func (r *run) release(v *vertex, end ending) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if end.add != nil {
		r.shared = merged(r.shared, end.add)
	}
	free := r.offer
	if end.rejects {
		free = func(*vertex) {} // all that could run now is vetoed
	}
	r.plan.end(v, end.state, free)
	if end.rejects {
		r.veto(v, r.plan.behind(v))
	}
	r.told()
	r.staff(1)
}

// veto skips all that is behind a gate. mu is held.
func (r *run) veto(gate *vertex, nodes []*vertex) {
	reason := fmt.Sprintf("vetoed by gate %q", gate.node.ID)
	if gate.reason != "" {
		reason += ": " + gate.reason
	}
	for _, v := range r.plan.veto(gate, nodes, reason) {
		r.note(v, isEnded)
	}
	if r.vetoed == nil {
		r.vetoed = map[string][]string{}
	}
	listed := map[string]bool{}
	for _, id := range r.vetoed[gate.node.ID] {
		listed[id] = true
	}
	for _, v := range nodes {
		if id := v.node.ID; !listed[id] {
			r.vetoed[gate.node.ID] = append(r.vetoed[gate.node.ID], id)
		}
	}
}
