package engine

import "context"

// Stats are counts of one moment.
type Stats struct {
	Warm       int    // activations in memory
	Waiting    int    // deliveries in mailboxes
	Running    int    // handlers
	Records    int    // records that wait for a commit or are in one
	Outbox     int    // rows that are not delivered, alarms among them
	Dormant    int    // alarms ahead of their time
	Removals   int    // delivered rows that are not deleted yet
	Executions int    // executions whose row exists
	Turns      uint64 // committed since the start
	Groups     uint64 // commits since the start
}

// Stats returns the counts.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := &e.pending
	c.mu.Lock()
	defer c.mu.Unlock()
	return Stats{
		Warm: len(e.warm), Waiting: e.waiting, Running: e.running, Records: c.queue.Len() + c.taken, Outbox: len(e.drain.rows),
		Dormant: e.drain.dormant, Removals: len(e.drain.removed), Executions: len(e.execs), Turns: e.turns, Groups: e.groups,
	}
}

// Quiet waits until no delivery waits or runs, no record waits for its commit, no execution runs, and the outbox holds
// alarms ahead of their time only. It returns the context's error when that ends first.
func (e *Engine) Quiet(ctx context.Context) error {
	e.mu.Lock()
	c := make(chan struct{})
	e.quiet = append(e.quiet, c)
	e.checkQuiet()
	e.mu.Unlock()
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (e *Engine) isQuiet() bool {
	c := &e.pending
	c.mu.Lock()
	defer c.mu.Unlock()
	return e.waiting == 0 && e.running == 0 && c.queue.Len() == 0 && c.taken == 0 && len(e.drain.rows) == e.drain.dormant &&
		len(e.drain.removed) == 0 && len(e.execs) == 0
}
