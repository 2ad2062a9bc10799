package engine

import (
	"encoding/json"
	"fmt"
	"slices"

	"soma/ident"
	"soma/internal/crash"
	"soma/internal/neuron"
)

// endedAlias names the delivery that tells a sender that one it sent was refused or given up; the engine handles it itself
// and writes the fact into the sender's outgoing feed.
const endedAlias = "neuron.delivery_ended.v1"

// staged is a record on its way through the committer, and what is to happen afterwards.
type staged struct {
	rec *neuron.Record
	// step is set for a record that a running turn commits ahead of its own.
	step *activation
	// a and j are set for the record of a turn.
	a       *activation
	j       *job
	in      neuron.Entry
	out     []neuron.Entry
	alias   string // state after the turn
	body    []byte
	wrote   bool
	refusal *neuron.Refusal
	kept    *neuron.Result // of a turn that a connection carried: what stays of it where that has gone
	started []neuron.Execution
	// end is called with nil after the commit of a record without a turn, or with the error of one that failed alone.
	end func(error)
}

// prepare builds what the record of any turn has: the accepted delivery, encoded before a handler sees it.
func (e *Engine) prepare(a *activation, j *job) (*staged, error) {
	s := &staged{a: a, j: j, in: neuron.Entry{Delivery: j.d}, alias: a.alias, body: a.body}
	if j.withheld() {
		s.in.Payload, s.in.Content = nil, ident.ID{}
	}
	rec := &neuron.Record{Place: a.place, Neuron: a.id, Key: a.key, New: a.unsaved}
	if n := j.attempts(); n > 1 {
		s.in.Attempts, s.in.Handled = n, e.now()
	}
	if c, ok := e.byReference(&s.in.Delivery); ok {
		rec.Contents = append(rec.Contents, c)
	}
	incoming, err := neuron.EncodeEntry(&s.in)
	if err != nil {
		return nil, fmt.Errorf("cannot encode delivery %s: %w", j.d.ID, err)
	}
	rec.Turn = &neuron.TurnRow{Seq: a.inSeq + 1, DeliveryID: j.d.ID, Incoming: incoming, OutFirst: a.outSeq + 1}
	s.rec = rec
	return s, nil
}

// byReference takes a payload that is too large for a row out of the delivery and returns it as content, if it is not
// stored yet.
func (e *Engine) byReference(d *neuron.Delivery) (neuron.Content, bool) {
	if !d.Content.IsZero() {
		d.Payload = nil
		return neuron.Content{}, false
	}
	if len(d.Payload) <= e.limits.PayloadBytes {
		return neuron.Content{}, false
	}
	c := neuron.Content{ID: ident.Derive(d.ID, "payload"), Bytes: d.Payload, Payload: true}
	d.Content, d.Payload = c.ID, nil
	return c, true
}

// complete adds to a prepared record what the handler left.
func (e *Engine) complete(s *staged, res neuron.Result) error {
	for i := range res.Out {
		if _, ok := e.types[res.Out[i].Alias]; !ok {
			return neuron.Settle(fmt.Errorf("%s is sent but not listed", res.Out[i].Alias))
		}
	}
	rec, h := s.rec, &res.Record
	rec.New, rec.Turn.OutFirst = s.a.unsaved, s.a.outSeq+1 // the turn may have committed steps
	rec.Contents = append(rec.Contents, h.Contents...)
	rec.Outbox, rec.Delivered = e.ownOutbox(h.Outbox, h.Delivered)
	for i := range h.Started {
		h.Started[i].ID = h.Started[i].ID.WithAttempt(0)
	}
	if err := e.checkStarted(h.Started); err != nil {
		return err
	}
	rec.Started, rec.Cancelled = h.Started, h.Cancelled
	rec.Ops = h.Ops
	if len(s.j.ops) > 0 {
		rec.Ops = slices.Concat(s.j.ops, h.Ops)
	}
	rec.Ended = h.Ended
	e.endExecution(s)
	s.out = res.Out
	if s.j.d.Alias == endedAlias {
		if err := e.writeFact(s); err != nil {
			return err
		}
	}
	if res.Wrote {
		s.alias, s.body, s.wrote = e.intern(res.StateAlias), res.State, true
		rec.Turn.StateAlias, rec.Turn.State = s.alias, s.body
	}
	return e.seal(s)
}

// checkStarted refuses an attempt that is not newer than the one that runs: its outcome would pass for a repeat.
func (e *Engine) checkStarted(list []neuron.Execution) error {
	if len(list) == 0 {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range list {
		if x := &list[i]; e.execs[x.ID] != nil && x.Attempt <= e.execs[x.ID].attempt {
			return neuron.Settle(fmt.Errorf("attempt %d of execution %s is not newer than attempt %d", x.Attempt, x.ID, e.execs[x.ID].attempt))
		}
	}
	return nil
}

// ownOutbox sets the first attempt of sent rows and drops what must not be written: a row whose id waits already (a send
// that came out equal), and a row that the same turn cancels.
func (e *Engine) ownOutbox(rows []neuron.OutboxRow, cancelled []ident.ID) ([]neuron.OutboxRow, []ident.ID) {
	if len(rows) == 0 {
		return nil, cancelled
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	kept := rows[:0]
	for i := range rows {
		if slices.Contains(cancelled, rows[i].ID) || e.drain.holds(rows[i].ID) {
			continue
		}
		rows[i].Attempts = 1
		kept = append(kept, rows[i])
	}
	return kept, cancelled
}

// writeFact turns a delivery_ended message into an entry of the outgoing feed.
func (e *Engine) writeFact(s *staged) error {
	var fact neuron.EndedDelivery
	if err := json.Unmarshal(s.j.d.Payload, &fact); err != nil {
		return neuron.SettleAs(neuron.Undecodable, err)
	}
	d := &s.j.d
	s.out = append(s.out, neuron.Entry{Ended: &fact, Delivery: neuron.Delivery{
		ID: d.ID, Alias: endedAlias, Caller: d.Target, Target: fact.Target, Correlation: d.Correlation, Causation: d.Causation,
		Seq: s.a.outSeq + 1, Depth: d.Depth, At: e.now(),
	}})
	return nil
}

// seal encodes the outgoing entries and adds a checkpoint when one is due.
func (e *Engine) seal(s *staged) error {
	a, rec := s.a, s.rec
	if len(s.out) > 0 {
		b, err := neuron.EncodeEntries(s.out)
		if err != nil {
			return fmt.Errorf("cannot encode what %s sends: %w", a.id, err)
		}
		rec.Turn.Outgoing = b
	}
	if crash.Off(crash.StartedOff) {
		s.started, rec.Started = rec.Started, nil
	} else {
		s.started = rec.Started
	}
	// The key spreads the checkpoints of neurons that run in step over many commits.
	if (rec.Turn.Seq+uint64(a.key))%uint64(e.limits.CheckpointTurn) != 0 {
		return nil
	}
	in, out := slices.Clone(a.in), slices.Clone(a.out)
	in.add(e.intern(s.in.Alias))
	for i := range s.out {
		out.add(e.intern(s.out[i].Alias))
	}
	rec.Checkpoint = &neuron.Checkpoint{
		InSeq: rec.Turn.Seq, OutSeq: a.outSeq + uint64(len(s.out)), Tallies: neuron.Tallies{In: in.counts(), Out: out.counts()},
		StateAlias: s.alias, State: s.body,
	}
	return nil
}

// settle ends a delivery for good (N-09): committed are the incoming entry with its code and the delivery id, the end of
// the outbox row, the fact for the sender, and where somebody may want to re-drive it a dead letter. The caller holds the
// activation's job.
func (e *Engine) settle(a *activation, j *job, refusal *neuron.Refusal) {
	s, err := e.prepare(a, j)
	if err != nil {
		e.recordFailed(&staged{a: a, j: j, refusal: refusal}, err)
		return
	}
	s.refusal, s.in.Settled = refusal, refusal.Code
	rec := s.rec
	rec.Ops = j.ops
	e.keepOf(s, refusal.Code)
	ended := &s.in.Delivery
	if !j.d.Via.IsZero() {
		ended = &j.row.Delivery // who re-drives it asks the connection again
	}
	err = e.addEnd(rec, ended, refusal, j.attempts())
	if err == nil {
		rec.Turn.Incoming, err = neuron.EncodeEntry(&s.in)
	}
	if err == nil {
		err = e.seal(s)
	}
	if err != nil {
		e.recordFailed(s, err)
		return
	}
	e.endExecution(s)
	e.log.Info("delivery settled", "neuron", a.id, "alias", j.d.Alias, "delivery", j.d.ID, "code", refusal.Code, "error", refusal.Err)
	e.stage(s)
}

// addEnd adds to a record the end of a delivery that was not handled.
func (e *Engine) addEnd(rec *neuron.Record, d *neuron.Delivery, refusal *neuron.Refusal, attempts int) error {
	if d.Request != nil {
		return nil // its row tells the caller
	}
	now := e.now()
	switch refusal.Code {
	case neuron.NoHandler, neuron.Undecodable, neuron.AttemptsSpent, neuron.HorizonPassed, neuron.CrashedTooOften:
		text := ""
		if refusal.Err != nil {
			text = clip(refusal.Err.Error(), 1024)
		}
		rec.Dead = append(rec.Dead, neuron.DeadLetter{Delivery: *d, Code: refusal.Code, Error: text, Attempts: attempts, EndedAt: now})
	}
	if d.Caller.IsZero() || d.Alias == endedAlias {
		return nil
	}
	payload, err := json.Marshal(neuron.EndedDelivery{ID: d.ID, Target: d.Target, Code: refusal.Code})
	if err != nil {
		return fmt.Errorf("cannot encode the end of %s: %w", d.ID, err)
	}
	back := neuron.Delivery{
		ID: ident.New(now), Alias: endedAlias, Payload: payload, Caller: d.Target, Target: d.Caller, Correlation: d.Correlation,
		Causation: d.ID, Depth: d.Depth, At: now,
	}
	rec.Outbox = append(rec.Outbox, neuron.OutboxRow{Delivery: back, Place: e.placeOf(back.Target), Due: now, Attempts: 1})
	return nil
}

func clip(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}
	return s
}

// attempts is the number of the running attempt.
func (j *job) attempts() int {
	if j.row == nil {
		return 1
	}
	return max(1, j.row.Attempts)
}
