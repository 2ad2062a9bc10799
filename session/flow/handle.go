package flow

import (
	"context"
	"errors"
	"fmt"

	"soma/ident"
)

// Handle is a flow that has been started. All methods may be called from any goroutine, and none but Wait waits for anything: the
// others may also be called from the flow's own nodes, handlers and callbacks.
type Handle struct{ run *run }

// ID names this run of the graph; signals carry it.
func (h *Handle) ID() ident.ID { return h.run.id }

// Pause lets no further node start; those that run go on. It is false if the flow has ended or is being cancelled.
func (h *Handle) Pause() bool {
	r := h.run
	r.mu.Lock()
	defer r.mu.Unlock()
	next, ok := r.phase.next(toPause)
	if !ok {
		return false
	}
	r.phase = next
	for r.ready.len() > 0 {
		r.rest(r.ready.pop())
	}
	r.staff(0)
	return true
}

// Resume ends a pause. It is false if the flow has ended or is being cancelled.
func (h *Handle) Resume() bool {
	r := h.run
	r.mu.Lock()
	defer r.mu.Unlock()
	next, ok := r.phase.next(toResume)
	if !ok {
		return false
	}
	r.phase = next
	resting := r.held
	r.held = nil
	for _, v := range resting {
		switch {
		case v.state != held: // the clerk has let it go since
		case v.notices > 0: // the clerk will
			r.held = append(r.held, v)
		default:
			r.goOn(v)
		}
	}
	r.staff(0)
	return true
}

// Cancel ends all nodes that have not begun, and the context of those that run: they are cancelled if they return an error, completed
// if they do not. A paused flow can be cancelled. It is false if the flow has ended or is being cancelled already.
func (h *Handle) Cancel() bool { return h.run.cancel(nil) }

// Inject adds a node to the flow; Alone means nothing for it, and it does not count as a request. Its branch, if it names none, is a
// clone of the flow's default branch. The error is a [*Refusal]; it wraps [ErrEnded] where the flow has ended or is being cancelled.
func (h *Handle) Inject(c Child) error {
	if refusal := h.run.admit(&c, nil, nil, false); refusal != nil {
		return refusal
	}
	return nil
}

// Wait waits until every node has ended and everything has been told, and returns what Run returns; or for the end of the context,
// whose error it returns then without a result.
func (h *Handle) Wait(ctx context.Context) (*Result, error) {
	select {
	case <-h.run.done:
		return h.run.outcome()
	case <-ctx.Done():
	}
	select {
	case <-h.run.done: // who asks after the end learns of it, whatever the context says
		return h.run.outcome()
	default:
		return nil, fmt.Errorf("cannot wait for a flow: %w", ctx.Err())
	}
}

// Result is what has become of a flow. Each node is in exactly one of the first four lists, which are in the order in which nodes ended.
type Result struct {
	Flow                                  ident.ID
	Completed, Failed, Skipped, Cancelled []string
	// Results are those of the completed nodes, Errors those of the failed ones.
	Results map[string]any
	Errors  map[string]error
	// Context is the flow's context at the end.
	Context map[string]any
	// Vetoed are the nodes behind each gate that rejected or failed, if there are any.
	Vetoed map[string][]string
	// Spawned are the nodes that joined while the flow ran, Restored those whose end the journal knew.
	Spawned, Restored []string
	// Refused are the requests that were not accepted, the first 1,000 of Refusals.
	Refused  []Refusal
	Refusals int
	// Branches says on which branch each node ran or would have.
	Branches map[string]ident.ID
}

// outcome is called when the flow has ended.
func (r *run) outcome() (*Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	res := &Result{
		Flow: r.id, Results: map[string]any{}, Errors: map[string]error{}, Context: copied(r.shared), Vetoed: r.vetoed,
		Refused: r.refused, Refusals: r.refusals, Branches: make(map[string]ident.ID, len(r.plan.all)),
	}
	for _, v := range r.plan.ended {
		id := v.node.ID
		switch v.state {
		case Completed:
			res.Completed = append(res.Completed, id)
			res.Results[id] = v.result
		case Failed:
			res.Failed = append(res.Failed, id)
			res.Errors[id] = v.err
		case Skipped:
			res.Skipped = append(res.Skipped, id)
		case Cancelled:
			res.Cancelled = append(res.Cancelled, id)
		}
		if v.again {
			res.Restored = append(res.Restored, id)
		}
	}
	for _, v := range r.plan.all {
		if v.spawned {
			res.Spawned = append(res.Spawned, v.node.ID)
		}
		if v.branch != nil {
			res.Branches[v.node.ID] = v.branch.ID()
		}
	}
	if err := errors.Join(append([]error{r.err}, r.faults...)...); err != nil {
		return res, fmt.Errorf("cannot run a flow to its end: %w", err)
	}
	return res, nil
}
