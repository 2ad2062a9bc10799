package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"soma/internal/neuron"
	"soma/internal/neuron/fifo"
	"soma/internal/neuron/observe"
)

// committer holds the records that wait for the next group. Each warm neuron has one at most, each caller too, and each
// failing outbox row: that bounds it.
type committer struct {
	mu      sync.Mutex
	arrived sync.Cond
	queue   fifo.Queue[*staged]
	flush   bool // commit the removals even if nothing else waits
	closed  bool
	taken   int                // records in the group that is being committed
	at      [neuron.Places]int // records that wait or are being committed, by place
}

// stage hands the record of a turn to the committer.
func (e *Engine) stage(s *staged) {
	e.mu.Lock()
	s.a.state = s.a.state.on(stage)
	e.mu.Unlock()
	e.submit(s)
}

// submit queues a record for the next group. After the engine stopped it ends at once.
func (e *Engine) submit(s *staged) {
	c := &e.pending
	c.mu.Lock()
	if !c.closed {
		c.queue.Push(s)
		c.at[s.rec.Place]++
		c.arrived.Signal()
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	e.abandon(s, e.why())
}

// abandon ends a record that will not be committed by this engine any more.
func (e *Engine) abandon(s *staged, err error) {
	if s.end != nil {
		s.end(err)
	} else {
		e.answer(s.j, err)
	}
}

// commitLoop commits what waits, group by group, until the queue is closed and empty. A commit is never interrupted: the
// owner's deadline bounds the wait for it.
func (e *Engine) commitLoop(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	c := &e.pending
	var group []*staged
	for {
		e.mu.Lock()
		c.mu.Lock()
		c.taken = 0
		c.mu.Unlock()
		e.checkQuiet()
		e.mu.Unlock()
		c.mu.Lock()
		for c.queue.Len() == 0 && !c.flush && !c.closed {
			c.arrived.Wait()
		}
		if c.queue.Len() == 0 && !c.flush {
			c.mu.Unlock()
			return nil
		}
		c.flush = false
		group = group[:0]
		for bytes := 0; c.queue.Len() > 0 && len(group) < e.limits.GroupRecords; {
			n := size(c.queue.Peek().rec)
			if len(group) > 0 && bytes+n > e.limits.GroupBytes {
				break
			}
			bytes += n
			group = append(group, c.queue.Pop())
		}
		c.taken = len(group)
		c.mu.Unlock()
		if s := e.removal(); s != nil {
			group = append(group, s)
		}
		if len(group) > 0 {
			e.commit(ctx, group)
		}
		c.mu.Lock()
		for _, s := range group[:c.taken] { // not the removal, which was not queued
			c.at[s.rec.Place]--
		}
		c.mu.Unlock()
	}
}

// commit commits a group, or each record alone when one of them spoils it.
func (e *Engine) commit(ctx context.Context, group []*staged) {
	if err := e.failure(); err != nil {
		for _, s := range group {
			e.abandon(s, err)
		}
		return
	}
	fence := e.fence.Load()
	group = e.own(fence, group)
	if len(group) == 0 {
		return
	}
	err := e.try(ctx, fence, group)
	if err == nil {
		return
	}
	var one *neuron.RecordError
	if len(group) == 1 && errors.As(err, &one) {
		e.recordFailed(group[0], one.Err)
		return
	}
	if len(group) == 1 || errors.Is(err, neuron.ErrFenced) || errors.Is(err, neuron.ErrOutcomeUnknown) ||
		errors.Is(err, neuron.ErrStoreFailed) {
		e.halt(fmt.Errorf("cannot commit: %w", err))
		for _, s := range group {
			e.abandon(s, e.why())
		}
		return
	}
	for i := range group {
		e.commit(ctx, group[i:i+1:i+1])
	}
}

func (e *Engine) try(ctx context.Context, fence *neuron.Fence, group []*staged) error {
	recs := make([]*neuron.Record, len(group))
	for i, s := range group {
		recs[i] = s.rec
	}
	began := time.Now()
	err := e.store.Commit(ctx, *fence, recs)
	if e.observer != nil {
		e.observer.Grouped(observe.Group{Records: len(recs), Took: time.Since(began), Failed: err != nil})
	}
	if err != nil {
		return err
	}
	e.apply(ctx, group, recs)
	return nil
}

// size estimates the bytes of a record's rows.
func size(r *neuron.Record) int {
	n := 256 + 512*len(r.Ops) + 64*(len(r.Ended)+len(r.Delivered))
	if t := r.Turn; t != nil {
		n += len(t.Incoming) + len(t.Outgoing) + len(t.State)
	}
	if c := r.Checkpoint; c != nil {
		n += len(c.State) + 64*(len(c.Tallies.In)+len(c.Tallies.Out))
	}
	for i := range r.Contents {
		n += len(r.Contents[i].Bytes)
	}
	for i := range r.Outbox {
		n += 256 + len(r.Outbox[i].Payload)
	}
	for i := range r.Dead {
		n += 256 + len(r.Dead[i].Payload)
	}
	for i := range r.Started {
		n += 256 + len(r.Started[i].Input)
	}
	return n
}
