package flow

import (
	"context"
	"iter"

	"soma/session"
)

// Stream runs a graph like Run, and yields each node as it ends, in the order in which they end. An error comes last, without a node.
// The flow starts when the sequence is ranged over, anew each time. It does not wait for who reads; who stops early cancels the rest,
// and the loop ends when the nodes that run have returned.
func Stream(ctx context.Context, s *session.Session, g *Graph, o Options) iter.Seq2[Outcome, error] {
	return func(yield func(Outcome, error) bool) {
		h, err := Start(ctx, s, g, o)
		if err != nil {
			yield(Outcome{}, err)
			return
		}
		defer func() {
			h.Cancel()
			<-h.run.done
		}()
		for seen := 0; ; {
			list, over, more := h.run.since(seen)
			for _, o := range list {
				if !yield(o, nil) {
					return
				}
			}
			seen += len(list)
			if over {
				break
			}
			<-more
		}
		if _, err := h.run.outcome(); err != nil {
			yield(Outcome{}, err)
		}
	}
}

// since returns the nodes that have ended after the first n, whether the flow is over, and what is closed when there is more.
func (r *run) since(n int) ([]Outcome, bool, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]Outcome, 0, len(r.plan.ended)-n)
	for _, v := range r.plan.ended[n:] {
		list = append(list, v.outcome())
	}
	if r.moved == nil {
		r.moved = make(chan struct{})
	}
	return list, r.phase == over, r.moved
}
