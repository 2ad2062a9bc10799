package flow

import (
	"context"
	"fmt"

	"soma/session"
)

// notice is something about a node that no worker tells, because none has the node.
type notice struct {
	v    *vertex
	what noticeKind
}

type noticeKind uint8

const (
	isSpawned noticeKind = iota
	isPaused
	isEnded
)

// note leaves a notice for the clerk. mu is held.
func (r *run) note(v *vertex, what noticeKind) {
	v.notices++
	r.desk = append(r.desk, notice{v, what})
}

// tellAll is the clerk: it tells what lies on the desk, in order, one at a time, so that the notices of a node come in order.
func (r *run) tellAll(ctx context.Context) {
	whole := false
	defer func() {
		if !whole { // the program has ended this goroutine from within a handler
			r.mu.Lock()
			r.clerk = false
			r.staff(0)
			r.mu.Unlock()
		}
		r.ifOver()
	}()
	for {
		r.mu.Lock()
		if len(r.desk) == 0 {
			r.desk, r.clerk, whole = nil, false, true
			r.mu.Unlock()
			return
		}
		n := r.desk[0]
		r.desk = r.desk[1:]
		r.mu.Unlock()
		r.tell(ctx, n)
	}
}

// tell tells one notice, after which its node may go on.
func (r *run) tell(ctx context.Context, n notice) {
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		n.v.notices--
		r.offer(n.v)
		r.goOn(n.v)
		r.staff(0)
	}()
	switch n.what {
	case isSpawned:
		s := NodeSpawned{Notice: r.notice(n.v)}
		if n.v.emitter != nil {
			s.Emitter = n.v.emitter.node.ID
		}
		r.emit(ctx, s)
		r.tellQueued(ctx, n.v)
	case isPaused:
		r.emit(ctx, NodePaused{r.notice(n.v)})
	case isEnded:
		r.tellEnd(ctx, n.v, n.v.state)
	}
}

// goOn lets a node go on that the pause has held back. mu is held.
func (r *run) goOn(v *vertex) {
	if v.state == held && r.phase == going {
		v.state = v.state.next(resumed)
		r.ready.push(v)
	}
}

func (r *run) notice(v *vertex) Notice {
	return Notice{Envelope: session.Envelope{Op: v.node.ID}, Flow: r.id, Node: v.node.ID}
}

// emit tells the observer, also when the flow's context has ended.
func (r *run) emit(ctx context.Context, s session.Signal) {
	r.sess.Observer().SafeEmit(context.WithoutCancel(ctx), s)
}

// progress tells Options.Progress. A panic of it is kept for Wait.
func (r *run) progress(v *vertex, kind Kind) {
	if r.o.Progress == nil {
		return
	}
	r.mu.Lock()
	if kind != IsQueued && kind != IsStarted {
		r.ends++
	}
	p := Progress{Flow: r.id, Node: v.node.ID, Kind: kind, Ended: r.ends, Total: len(r.plan.all)}
	if kind == IsFailed || kind == IsCancelled {
		p.Err = v.err
	}
	r.mu.Unlock()
	err := guard("Progress", func() error {
		r.o.Progress(p)
		return nil
	})
	if err != nil {
		r.mu.Lock()
		if len(r.faults) < mostFaults {
			r.faults = append(r.faults, fmt.Errorf("cannot tell of node %q: %w", v.node.ID, err))
		}
		r.mu.Unlock()
	}
}

const mostFaults = 10

func (r *run) tellQueued(ctx context.Context, v *vertex) {
	r.emit(ctx, NodeQueued{r.notice(v)})
	r.progress(v, IsQueued)
}

func (r *run) tellStarted(ctx context.Context, v *vertex) {
	r.emit(ctx, NodeStarted{Notice: r.notice(v), Branch: v.branch.ID(), Attempt: v.attempt})
	r.progress(v, IsStarted)
}

func (r *run) tellEscalated(ctx context.Context, v *vertex, e *Escalation) {
	r.emit(ctx, NodeEscalated{Notice: r.notice(v), Attempt: v.attempt, Reason: e.Reason})
}

func (r *run) tellEnd(ctx context.Context, v *vertex, s State) {
	switch n := r.notice(v); s {
	case Completed:
		r.emit(ctx, NodeCompleted{Notice: n, Restored: v.again, Rejected: v.rejects})
		r.progress(v, IsCompleted)
	case Failed:
		r.emit(ctx, NodeFailed{Notice: n, Restored: v.again, Error: v.err.Error()})
		r.progress(v, IsFailed)
	case Skipped:
		r.emit(ctx, NodeSkipped{Notice: n, Restored: v.again, Reason: v.reason})
		r.progress(v, IsSkipped)
	default:
		r.emit(ctx, NodeCancelled{n})
		r.progress(v, IsCancelled)
	}
}
