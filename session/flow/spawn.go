package flow

import (
	"context"

	"soma/session"
)

// mostRefusals is how many refusals a result lists.
const mostRefusals = 1_000

// ask takes a request that somebody has emitted on the observer.
func (r *run) ask(ctx context.Context, request any) {
	at, within := ctx.Value(visitKey{}).(*visit)
	switch {
	case !within:
		r.spawn(ctx, nil, request)
	case at.run == r:
		r.spawn(ctx, at.v, request)
	}
}

// spawn has a node made of a request, and lists a refusal.
func (r *run) spawn(ctx context.Context, emitter *vertex, request any) {
	if r.o.Reactive.build == nil {
		return // a journal knows of requests that this run does not want
	}
	refusal := r.full(emitter)
	if refusal == nil {
		refusal = r.build(ctx, emitter, request)
	}
	if refusal == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if emitter != nil {
		refusal.Emitter = emitter.node.ID
		if refusal.Reason == Ended {
			emitter.requests = append(emitter.requests, request) // for the next run with the same journal
		}
	}
	if r.refusals++; r.refusals <= mostRefusals {
		r.refused = append(r.refused, *refusal)
	}
}

// full asks before the builder is called; admit asks again.
func (r *run) full(emitter *vertex) *Refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed(true)
}

func (r *run) closed(counts bool) *Refusal {
	switch {
	case r.phase == cancelling, r.phase == over:
		return &Refusal{Reason: Ended, Err: ErrEnded}
	case counts && r.accepted >= r.o.Reactive.max:
		return &Refusal{Reason: MaxSpawnExceeded}
	}
	return nil
}

func (r *run) build(ctx context.Context, emitter *vertex, request any) *Refusal {
	var c *Child
	err := guard("the builder", func() (err error) {
		c, err = r.o.Reactive.build(ctx, request)
		return err
	})
	switch {
	case err != nil:
		return &Refusal{Reason: BuilderError, Err: err}
	case c == nil:
		return &Refusal{Reason: NullChild}
	}
	return r.admit(c, emitter, request, true)
}

// admit lets a child join the flow. It is announced by the clerk, and can run once that has been done.
func (r *run) admit(c *Child, emitter *vertex, request any, counts bool) *Refusal {
	var branch *session.Branch
	if !c.Branch.IsZero() {
		var err error
		if branch, err = r.sess.Branch(c.Branch); err != nil {
			return &Refusal{Node: c.ID, Reason: BuilderError, Err: err}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if refusal := r.closed(counts); refusal != nil {
		refusal.Node = c.ID
		return refusal
	}
	v, refusal := r.plan.admit(c, emitter)
	if refusal != nil {
		return refusal
	}
	v.branch = branch
	if counts {
		r.accepted++
	}
	if emitter != nil {
		emitter.requests = append(emitter.requests, request)
	}
	r.note(v, isSpawned)
	for _, e := range v.in {
		if gate := e.from.vetoer(); gate != nil {
			r.veto(gate, append([]*vertex{v}, r.plan.behind(v)...))
			r.told()
			break
		}
	}
	r.staff(0)
	return nil
}
