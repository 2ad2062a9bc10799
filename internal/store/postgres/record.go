package postgres

import (
	"context"
	"encoding/json"

	"soma/ident"
	"soma/internal/crash"
	"soma/internal/neuron"
	"soma/internal/store/counter"
	"soma/internal/store/window"
)

const (
	insertTurns = `insert into turn (neuron, seq, delivery_id, incoming, out_first, outgoing, state_alias, state)
		select * from unnest($1::bigint[], $2::bigint[], $3::bytea[], $4::bytea[], $5::bigint[], $6::bytea[], $7::text[], $8::bytea[])`
	insertNeuron = `insert into neuron (key, id, place, in_seq, out_seq, tallies, marks, latest, state_alias, state)
		values (?, ?, ?, 0, 0, '{}', '{}', '', '', null)`
	insertContent = `insert into content (id, size, bytes, payload) values (?, ?, ?, ?)`
	insertOutbox  = `insert into outbox (id, place, target, delivery, due, first_try, tried, attempts, crashes, alarm)
		values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	retryOutbox  = `update outbox set due = ?, first_try = ?, tried = ?, attempts = ?, crashes = ? where id = ?`
	deleteOutbox = `delete from outbox where id = any(?)`
	insertDead   = `insert into dead_letter (id, delivery, code, error, attempts, ended_at) values (?, ?, ?, ?, ?, ?)
		on conflict (id) do update set delivery = excluded.delivery, code = excluded.code, error = excluded.error,
		attempts = excluded.attempts, ended_at = excluded.ended_at`
	deleteDead      = `delete from dead_letter where id = ?`
	insertExecution = `insert into execution (id, place, neuron, kind, attempt, estimate, body, started_at)
		values (?, ?, ?, ?, ?, ?, ?, ?) on conflict (id) do update set place = excluded.place, neuron = excluded.neuron,
		kind = excluded.kind, attempt = excluded.attempt, estimate = excluded.estimate, body = excluded.body,
		started_at = excluded.started_at`
	deleteExecution = `delete from execution where id = any(?)`
)

// addTurns writes the turn rows of the whole group with one statement: each statement costs the server more than a row.
func (s *Store) addTurns(ctx context.Context, b *batch, group []*neuron.Record) error {
	rows := make([]*neuron.Record, 0, len(group))
	for _, r := range group {
		if r.Turn != nil {
			rows = append(rows, r)
		}
	}
	n := len(rows)
	if n == 0 {
		return nil
	}
	turn := func(i int) *neuron.TurnRow { return rows[i].Turn }
	return b.add(ctx, none, "add turns", insertTurns,
		integers(n, func(i int) int64 { return rows[i].Key }),
		integers(n, func(i int) int64 { return int64(turn(i).Seq) }),
		byteas(n, func(i int) []byte {
			switch t := turn(i); {
			case t.IsStep():
				return nil
			case crash.Off(crash.DedupeOff):
				id := ident.New(s.options.Now())
				return id[:]
			default:
				return t.DeliveryID[:]
			}
		}),
		byteas(n, func(i int) []byte {
			if turn(i).IsStep() {
				return nil
			}
			return present(turn(i).Incoming)
		}),
		integers(n, func(i int) int64 { return int64(turn(i).OutFirst) }),
		byteas(n, func(i int) []byte {
			if len(turn(i).Outgoing) == 0 {
				return nil
			}
			return turn(i).Outgoing
		}),
		stringsOf(n, func(i int) string { return turn(i).StateAlias }),
		byteas(n, func(i int) []byte {
			if turn(i).StateAlias == "" {
				return nil
			}
			return turn(i).State
		}))
}

// addRecord adds what a record writes besides its turn row. i is its place in the group.
func (s *Store) addRecord(ctx context.Context, b *batch, past *pasts, i int, r *neuron.Record) error {
	if r.New {
		if err := b.add(ctx, i, "add neuron "+r.Neuron.String(), insertNeuron, r.Key, r.Neuron.String(), int64(r.Place)); err != nil {
			return err
		}
	}
	if r.Turn != nil {
		past.turn(r.Key, r.Turn)
	}
	if r.Checkpoint != nil {
		if err := s.addCheckpoint(ctx, b, past, i, r); err != nil {
			return err
		}
	}
	for j := range r.Contents {
		c := &r.Contents[j]
		if err := b.add(ctx, i, "add content", insertContent, c.ID[:], int64(len(c.Bytes)), present(c.Bytes), c.Payload); err != nil {
			return err
		}
	}
	if err := s.addOutbox(ctx, b, i, r); err != nil {
		return err
	}
	if err := s.addDead(ctx, b, i, r); err != nil {
		return err
	}
	if err := s.addExecutions(ctx, b, i, r); err != nil {
		return err
	}
	for _, op := range r.Ops {
		if err := s.addOp(ctx, b, i, op); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) addOutbox(ctx context.Context, b *batch, i int, r *neuron.Record) error {
	for j := range r.Outbox {
		o := &r.Outbox[j]
		body, err := json.Marshal(&o.Delivery)
		if err != nil {
			return &neuron.RecordError{Index: i, Err: err}
		}
		if err := b.add(ctx, i, "add an outbox row", insertOutbox, o.ID[:], int64(o.Place), o.Target.String(), body, window.Micros(o.Due),
			window.Micros(o.FirstTry), o.Tried.Microseconds(), int64(o.Attempts), int64(o.Crashes), o.Alarm); err != nil {
			return err
		}
	}
	for j := range r.Retried {
		o := &r.Retried[j]
		if err := b.add(ctx, i, "change an outbox row", retryOutbox, window.Micros(o.Due), window.Micros(o.FirstTry),
			o.Tried.Microseconds(), int64(o.Attempts), int64(o.Crashes), o.ID[:]); err != nil {
			return err
		}
	}
	return addDeletes(ctx, b, i, deleteOutbox, r.Delivered)
}

func (s *Store) addDead(ctx context.Context, b *batch, i int, r *neuron.Record) error {
	for j := range r.Dead {
		d := &r.Dead[j]
		body, err := json.Marshal(&d.Delivery)
		if err != nil {
			return &neuron.RecordError{Index: i, Err: err}
		}
		if err := b.add(ctx, i, "add a dead letter", insertDead, d.ID[:], body, string(d.Code), d.Error, int64(d.Attempts),
			window.Micros(d.EndedAt)); err != nil {
			return err
		}
	}
	for j := range r.Undead {
		if err := b.one(ctx, i, neuron.ErrNoDeadLetter, "delete a dead letter", deleteDead, r.Undead[j][:]); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) addExecutions(ctx context.Context, b *batch, i int, r *neuron.Record) error {
	for j := range r.Started {
		x := &r.Started[j]
		body, err := json.Marshal(x)
		if err != nil {
			return &neuron.RecordError{Index: i, Err: err}
		}
		if err := b.add(ctx, i, "add an execution", insertExecution, x.ID[:], int64(r.Place), x.Neuron.String(), x.Kind,
			int64(x.Attempt), x.Estimate, body, window.Micros(x.StartedAt)); err != nil {
			return err
		}
	}
	return addDeletes(ctx, b, i, deleteExecution, r.Ended)
}

func addDeletes(ctx context.Context, b *batch, i int, text string, ids []ident.ID) error {
	if len(ids) == 0 {
		return nil
	}
	return b.add(ctx, i, "delete rows", text, byteas(len(ids), func(j int) []byte { return ids[j][:] }))
}

func (s *Store) addOp(ctx context.Context, b *batch, i int, op neuron.Op) error {
	if _, ok := op.(neuron.Shared); ok {
		return nil // it runs before all records
	}
	if n, ok := op.(neuron.Numbered); ok {
		name, key := n.Sequence()
		n.SetNumber(s.counts.Next(counter.Key{Name: name, Of: key}, i)) // ask has loaded it
	}
	return b.op(ctx, i, op)
}

// present keeps an empty value from becoming null.
func present(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
