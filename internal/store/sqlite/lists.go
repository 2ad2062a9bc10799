package sqlite

import (
	"context"
	"encoding/json"
	"fmt"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/store/window"
)

const (
	outboxColumns = `select ` + window.OutboxColumns + ` from outbox `
	selectOutbox  = outboxColumns + `where id > ? order by id limit ?`
	// The places are a JSON array of numbers.
	selectOutboxIn     = outboxColumns + `where id > ? and place in (select value from json_each(?)) order by id limit ?`
	selectOutboxRow    = outboxColumns + `where id = ?`
	selectExecutions   = `select ` + window.ExecutionColumns + ` from execution where id > ? order by id limit ?`
	selectExecutionsIn = `select ` + window.ExecutionColumns + ` from execution where id > ? and place in (select value from json_each(?)) order by id limit ?`
	selectDead         = `select ` + window.DeadColumns + ` from dead_letter where id > ? order by id limit ?`
)

// Outbox reads up to limit rows of the places in order of id after the given id.
func (s *Store) Outbox(ctx context.Context, in neuron.PlaceSet, after ident.ID, limit int) ([]neuron.OutboxRow, error) {
	text, args, err := within(selectOutbox, selectOutboxIn, in, after, limit)
	if err != nil {
		return nil, err
	}
	return list(ctx, s, "the outbox", text, args, window.ScanOutbox)
}

// OutboxRows reads the rows of the given ids that exist.
func (s *Store) OutboxRows(ctx context.Context, ids []ident.ID) ([]neuron.OutboxRow, error) {
	var out []neuron.OutboxRow
	for i := range ids {
		rows, err := list(ctx, s, "an outbox row", selectOutboxRow, []any{ids[i][:]}, window.ScanOutbox)
		if err != nil {
			return nil, err
		}
		out = append(out, rows...)
	}
	return out, nil
}

// within returns the statement that reads the places and its arguments: all of them need no filter.
func within(all, some string, in neuron.PlaceSet, after ident.ID, limit int) (string, []any, error) {
	if in == neuron.AllPlaces() {
		return all, []any{after[:], max(limit, 0)}, nil
	}
	numbers := make([]int, 0, in.Len()) // a list of bytes would become a text
	for p := range in.All() {
		numbers = append(numbers, int(p))
	}
	places, err := json.Marshal(numbers)
	if err != nil {
		return "", nil, err
	}
	return some, []any{after[:], string(places), max(limit, 0)}, nil
}

// Executions reads up to limit started executions of the places in order of id after the given id.
func (s *Store) Executions(ctx context.Context, in neuron.PlaceSet, after ident.ID, limit int) ([]neuron.Execution, error) {
	text, args, err := within(selectExecutions, selectExecutionsIn, in, after, limit)
	if err != nil {
		return nil, err
	}
	return list(ctx, s, "executions", text, args, window.ScanExecution)
}

// DeadLetters reads up to limit of them in order of id after the given id.
func (s *Store) DeadLetters(ctx context.Context, after ident.ID, limit int) ([]neuron.DeadLetter, error) {
	return list(ctx, s, "dead letters", selectDead, []any{after[:], max(limit, 0)}, window.ScanDead)
}

func list[T any](ctx context.Context, s *Store, what, text string, args []any, fill func(*T, func(...any) error) error) ([]T, error) {
	var out []T
	err := s.queries.each(ctx, nil, text, args, func(scan func(...any) error) error {
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
