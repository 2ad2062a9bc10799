package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math"

	"soma/ident"
	"soma/internal/crash"
	"soma/internal/neuron"
	"soma/internal/store/window"
)

const (
	selectRow   = `select key, place, in_seq, out_seq, tallies, state_alias, state from neuron where id = ?`
	selectTurns = `select seq, incoming, outgoing, state_alias, state from turn where neuron = ? and seq > ? order by seq, pos`
	selectKey   = `select coalesce(max(key), 0) from neuron`
	// selectSettled looks into the unique index, and into the segments where the id is not newer than all that they hold.
	selectSettled = `select 1 from turn where delivery_id = ?1 and neuron = ?2 union all
		select 1 from seen where neuron = ?2 and ?1 <= (select latest from neuron where key = ?2) and instr(ids, ?1) > 0 limit 1`
)

// Neuron reads the checkpoint of a neuron and moves it on by the turns after it, all as of one moment.
func (s *Store) Neuron(ctx context.Context, id neuron.ID) (neuron.NeuronRow, error) {
	var n neuron.NeuronRow
	err := s.snapshot(ctx, func(tx *sql.Tx) (err error) {
		n, err = s.activation(ctx, tx, id)
		return err
	})
	if err != nil {
		return neuron.NeuronRow{}, fmt.Errorf("cannot read neuron %s: %w", id, err)
	}
	return n, nil
}

func (s *Store) activation(ctx context.Context, tx *sql.Tx, id neuron.ID) (n neuron.NeuronRow, err error) {
	err = s.queries.each(ctx, tx, selectRow, []any{id.String()}, func(scan func(...any) error) error {
		var tallies []byte
		if err := scan(&n.Key, &n.Place, &n.InSeq, &n.OutSeq, &tallies, &n.StateAlias, &n.State); err != nil {
			return err
		}
		return json.Unmarshal(tallies, &n.Tallies)
	})
	if err != nil || n.Key == 0 {
		return n, err
	}
	err = s.queries.each(ctx, tx, selectTurns, []any{n.Key, int64(n.InSeq)}, func(scan func(...any) error) error {
		var incoming, outgoing, state []byte
		var alias sql.NullString
		var seq uint64
		if err := scan(&seq, &incoming, &outgoing, &alias, &state); err != nil {
			return err
		}
		if incoming == nil {
			return window.TallyOut(&n.Checkpoint, outgoing) // a step: its turn may have been retracted
		}
		n.InSeq = seq
		if alias.Valid {
			n.StateAlias, n.State = alias.String, state
		}
		n.SinceCheckpoint++
		return window.Tally(&n.Checkpoint, incoming, outgoing)
	})
	return n, err
}

// ReserveKeys returns all keys above those in use: on one file there is one owner at a time.
func (s *Store) ReserveKeys(ctx context.Context) (first, last int64, err error) {
	err = s.queries.each(ctx, nil, selectKey, nil, func(scan func(...any) error) error { return scan(&first) })
	if err != nil {
		return 0, 0, fmt.Errorf("cannot read the last neuron key: %w", err)
	}
	return first + 1, math.MaxInt64, nil
}

// Settled looks for the delivery among the neuron's turns and in the segments of its ids.
func (s *Store) Settled(ctx context.Context, key int64, id ident.ID) (bool, error) {
	if crash.Off(crash.DedupeOff) {
		return false, nil
	}
	found := false
	err := s.queries.each(ctx, nil, selectSettled, []any{id[:], key}, func(func(...any) error) error {
		found = true
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("cannot look for delivery %s: %w", id, err)
	}
	return found, nil
}
