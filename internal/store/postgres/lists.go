package postgres

import (
	"context"
	"fmt"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/store/window"
)

const (
	outboxColumns    = `select ` + window.OutboxColumns + ` from outbox `
	selectOutbox     = outboxColumns + `where id > ? and place = any(?::bigint[]) order by id limit ?`
	selectOutboxRows = outboxColumns + `where id = any(?)`
	selectExecutions = `select ` + window.ExecutionColumns + ` from execution where id > ? and place = any(?::bigint[]) order by id limit ?`
	selectDead       = `select ` + window.DeadColumns + ` from dead_letter where id > ? order by id limit ?`
)

// Outbox reads up to limit rows of the places in order of id after the given id.
func (s *Store) Outbox(ctx context.Context, in neuron.PlaceSet, after ident.ID, limit int) ([]neuron.OutboxRow, error) {
	return list(ctx, s, "the outbox", selectOutbox, []any{after[:], numbers(in), int64(max(limit, 0))}, window.ScanOutbox)
}

// OutboxRows reads the rows of the given ids that exist, in any order.
func (s *Store) OutboxRows(ctx context.Context, ids []ident.ID) ([]neuron.OutboxRow, error) {
	return list(ctx, s, "outbox rows", selectOutboxRows, []any{byteas(len(ids), func(i int) []byte { return ids[i][:] })}, window.ScanOutbox)
}

func numbers(in neuron.PlaceSet) array {
	places := make([]neuron.Place, 0, in.Len())
	for p := range in.All() {
		places = append(places, p)
	}
	return integers(len(places), func(i int) int64 { return int64(places[i]) })
}

// Executions reads up to limit started executions of the places in order of id after the given id.
func (s *Store) Executions(ctx context.Context, in neuron.PlaceSet, after ident.ID, limit int) ([]neuron.Execution, error) {
	return list(ctx, s, "executions", selectExecutions, []any{after[:], numbers(in), int64(max(limit, 0))}, window.ScanExecution)
}

// DeadLetters reads up to limit of them, of all places, in order of id after the given id.
func (s *Store) DeadLetters(ctx context.Context, after ident.ID, limit int) ([]neuron.DeadLetter, error) {
	return list(ctx, s, "dead letters", selectDead, []any{after[:], int64(max(limit, 0))}, window.ScanDead)
}

func list[T any](ctx context.Context, s *Store, what, text string, args []any, fill func(*T, func(...any) error) error) ([]T, error) {
	var out []T
	err := s.each(ctx, text, args, func(scan func(...any) error) error {
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
