package engine

import (
	"context"
	"time"
)

// wakeBy makes the clock look at the given time at the latest.
func (e *Engine) wakeBy(at time.Time) {
	if !e.drain.wakeAt.IsZero() && !at.Before(e.drain.wakeAt) {
		return
	}
	e.drain.wakeAt = at
	select {
	case e.kick <- struct{}{}:
	default:
	}
}

// clockLoop does what is due: retries, alarms, the removal of delivered rows, passivation. Its timer runs only while one of
// them waits.
func (e *Engine) clockLoop(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Stop()
		if next := e.look(); !next.IsZero() {
			timer.Reset(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-e.kick:
		case <-timer.C:
		}
	}
}

func (e *Engine) look() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	e.drain.wakeAt = time.Time{}
	next := earlier(e.due(now), e.passivateIdle(now))
	if at := e.drain.flushAt; !at.IsZero() {
		if at.After(now) {
			next = earlier(next, at)
		} else {
			c := &e.pending
			c.mu.Lock()
			c.flush = true
			c.arrived.Signal()
			c.mu.Unlock()
		}
	}
	e.drain.wakeAt = next
	e.checkQuiet()
	return next
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
