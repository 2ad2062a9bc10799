package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"soma/ident"
	"soma/internal/neuron"
)

const (
	selectOutbox = `select place, delivery, due, first_try, tried, attempts, crashes, alarm from outbox
		where id > ? order by id limit ?`
	selectExecutions = `select body from execution where id > ? order by id limit ?`
	selectDead       = `select delivery, code, error, attempts, ended_at from dead_letter where id > ? order by id limit ?`
)

// Outbox reads up to limit rows in order of id after the given id.
func (s *Store) Outbox(ctx context.Context, after ident.ID, limit int) ([]neuron.OutboxRow, error) {
	return list(ctx, s, "the outbox", selectOutbox, after, limit, func(o *neuron.OutboxRow, scan func(...any) error) error {
		var body sql.RawBytes
		var due, first, tried int64
		if err := scan(&o.Place, &body, &due, &first, &tried, &o.Attempts, &o.Crashes, &o.Alarm); err != nil {
			return err
		}
		o.Due, o.FirstTry, o.Tried = fromMicros(due), fromMicros(first), time.Duration(tried)*time.Microsecond
		return json.Unmarshal(body, &o.Delivery)
	})
}

// Executions reads up to limit started executions in order of id after the given id.
func (s *Store) Executions(ctx context.Context, after ident.ID, limit int) ([]neuron.Execution, error) {
	return list(ctx, s, "executions", selectExecutions, after, limit, func(x *neuron.Execution, scan func(...any) error) error {
		var body sql.RawBytes
		if err := scan(&body); err != nil {
			return err
		}
		return json.Unmarshal(body, x)
	})
}

// DeadLetters reads up to limit of them in order of id after the given id.
func (s *Store) DeadLetters(ctx context.Context, after ident.ID, limit int) ([]neuron.DeadLetter, error) {
	return list(ctx, s, "dead letters", selectDead, after, limit, func(d *neuron.DeadLetter, scan func(...any) error) error {
		var body sql.RawBytes
		var ended int64
		if err := scan(&body, &d.Code, &d.Error, &d.Attempts, &ended); err != nil {
			return err
		}
		d.EndedAt = fromMicros(ended)
		return json.Unmarshal(body, &d.Delivery)
	})
}

func list[T any](ctx context.Context, s *Store, what, text string, after ident.ID, limit int, fill func(*T, func(...any) error) error) ([]T, error) {
	var out []T
	err := s.queries.each(ctx, nil, text, []any{after[:], max(limit, 0)}, func(scan func(...any) error) error {
		var v T
		if err := fill(&v, scan); err != nil {
			return err
		}
		out = append(out, v)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", what, err)
	}
	return out, nil
}
