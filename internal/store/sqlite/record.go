package sqlite

import (
	"context"
	"encoding/json"
	"fmt"

	"soma/ident"
	"soma/internal/crash"
	"soma/internal/neuron"
	"soma/internal/store/window"
)

const (
	insertNeuron = `insert into neuron (key, id, place, in_seq, out_seq, tallies, marks, latest, state_alias, state)
		values (?, ?, ?, 0, 0, '{}', '{}', x'', '', null)`
	insertTurn = `insert into turn (pos, neuron, seq, delivery_id, incoming, out_first, outgoing, state_alias, state)
		values (?, ?, ?, ?, ?, ?, ?, ?, ?)`
	insertContent = `insert into content (id, size, bytes, payload) values (?, ?, ?, ?)`
	insertOutbox  = `insert into outbox (id, place, target, delivery, due, first_try, tried, attempts, crashes, alarm)
		values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	retryOutbox  = `update outbox set due = ?, first_try = ?, tried = ?, attempts = ?, crashes = ? where id = ?`
	deleteOutbox = `delete from outbox where id = ?`
	insertDead   = `insert into dead_letter (id, delivery, code, error, attempts, ended_at) values (?, ?, ?, ?, ?, ?)
		on conflict (id) do update set delivery = excluded.delivery, code = excluded.code, error = excluded.error,
		attempts = excluded.attempts, ended_at = excluded.ended_at`
	deleteDead      = `delete from dead_letter where id = ?`
	insertExecution = `insert into execution (id, place, neuron, kind, attempt, estimate, body, started_at)
		values (?, ?, ?, ?, ?, ?, ?, ?) on conflict (id) do update set place = excluded.place, neuron = excluded.neuron,
		kind = excluded.kind, attempt = excluded.attempt, estimate = excluded.estimate, body = excluded.body,
		started_at = excluded.started_at`
	deleteExecution = `delete from execution where id = ?`
)

// write applies one record within the transaction. index is its place in the group.
func (s *Store) write(ctx context.Context, index int, r *neuron.Record) error {
	w := s.w
	if r.New {
		if _, err := w.exec(ctx, insertNeuron, r.Key, r.Neuron.String(), int64(r.Place)); err != nil {
			return fmt.Errorf("cannot add neuron %s: %w", r.Neuron, err)
		}
	}
	if r.Turn != nil {
		if err := s.writeTurn(ctx, r.Key, r.Turn); err != nil {
			return err
		}
	}
	if r.Checkpoint != nil {
		if err := s.writeCheckpoint(ctx, r.Key, r.Checkpoint); err != nil {
			return fmt.Errorf("cannot write the checkpoint of %s: %w", r.Neuron, err)
		}
	}
	for i := range r.Contents {
		c := &r.Contents[i]
		if _, err := w.exec(ctx, insertContent, c.ID[:], int64(len(c.Bytes)), present(c.Bytes), c.Payload); err != nil {
			return fmt.Errorf("cannot add content %s: %w", c.ID, err)
		}
	}
	if err := s.writeOutbox(ctx, r); err != nil {
		return err
	}
	for i := range r.Dead {
		d := &r.Dead[i]
		body, err := json.Marshal(&d.Delivery)
		if err != nil {
			return err
		}
		if _, err := w.exec(ctx, insertDead, d.ID[:], body, string(d.Code), d.Error, int64(d.Attempts), window.Micros(d.EndedAt)); err != nil {
			return fmt.Errorf("cannot add dead letter %s: %w", d.ID, err)
		}
	}
	for i := range r.Undead {
		n, err := w.exec(ctx, deleteDead, r.Undead[i][:])
		switch {
		case err != nil:
			return fmt.Errorf("cannot delete %s: %w", r.Undead[i], err)
		case n != 1:
			return neuron.ErrNoDeadLetter
		}
	}
	for i := range r.Started {
		x := &r.Started[i]
		body, err := neuron.AppendExecution(s.scratch[:0], x)
		if err != nil {
			return err
		}
		s.scratch = body
		if _, err := w.exec(ctx, insertExecution, x.ID[:], int64(r.Place), x.Neuron.String(), x.Kind, int64(x.Attempt), x.Estimate,
			body, window.Micros(x.StartedAt)); err != nil {
			return fmt.Errorf("cannot add execution %s: %w", x.ID, err)
		}
	}
	if err := s.deleteAll(ctx, deleteExecution, r.Ended); err != nil {
		return err
	}
	for _, op := range r.Ops {
		if err := s.writeOp(ctx, index, op); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) writeTurn(ctx context.Context, key int64, t *neuron.TurnRow) error {
	id := t.DeliveryID
	if crash.Off(crash.DedupeOff) {
		id = ident.New(s.options.Now())
	}
	var delivery, incoming, alias, state, outgoing any
	if !t.IsStep() {
		delivery, incoming = id[:], t.Incoming
	}
	if t.StateAlias != "" {
		alias, state = t.StateAlias, t.State
	}
	if len(t.Outgoing) > 0 {
		outgoing = t.Outgoing
	}
	_, err := s.w.exec(ctx, insertTurn, t.Pos, key, int64(t.Seq), delivery, incoming, int64(t.OutFirst), outgoing, alias, state)
	switch {
	case isUnique(err):
		return neuron.ErrDuplicate
	case err != nil:
		return fmt.Errorf("cannot add turn %d: %w", t.Seq, err)
	}
	return nil
}

func (s *Store) writeOutbox(ctx context.Context, r *neuron.Record) error {
	for i := range r.Outbox {
		o := &r.Outbox[i]
		body, err := neuron.AppendDelivery(make([]byte, 0, 400+len(o.Payload)), &o.Delivery)
		if err != nil {
			return err
		}
		if _, err := s.w.exec(ctx, insertOutbox, o.ID[:], int64(o.Place), o.Target.String(), body, window.Micros(o.Due), window.Micros(o.FirstTry),
			o.Tried.Microseconds(), int64(o.Attempts), int64(o.Crashes), o.Alarm); err != nil {
			return fmt.Errorf("cannot add outbox row %s: %w", o.ID, err)
		}
	}
	for i := range r.Retried {
		o := &r.Retried[i]
		if _, err := s.w.exec(ctx, retryOutbox, window.Micros(o.Due), window.Micros(o.FirstTry), o.Tried.Microseconds(), int64(o.Attempts),
			int64(o.Crashes), o.ID[:]); err != nil {
			return fmt.Errorf("cannot change outbox row %s: %w", o.ID, err)
		}
	}
	return s.deleteAll(ctx, deleteOutbox, r.Delivered)
}

func (s *Store) deleteAll(ctx context.Context, text string, ids []ident.ID) error {
	for i := range ids {
		if _, err := s.w.exec(ctx, text, ids[i][:]); err != nil {
			return fmt.Errorf("cannot delete %s: %w", ids[i], err)
		}
	}
	return nil
}

func (s *Store) writeOp(ctx context.Context, record int, op neuron.Op) error {
	if _, ok := op.(neuron.Shared); ok {
		return nil // it ran before all records
	}
	if n, ok := op.(neuron.Numbered); ok {
		if err := s.next(ctx, record, n); err != nil {
			return err
		}
	}
	return s.run(ctx, op)
}

func (s *Store) run(ctx context.Context, op neuron.Op) error {
	changed, err := s.w.exec(ctx, op.SQL(), op.Args()...)
	if err != nil {
		return fmt.Errorf("cannot write %T: %w", op, err)
	}
	if g, ok := op.(neuron.Guarded); ok && changed != 1 {
		return g.Guard()
	}
	return nil
}

// present keeps an empty value from becoming null.
func present(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
