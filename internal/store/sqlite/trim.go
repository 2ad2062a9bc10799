package sqlite

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"fmt"

	"soma/internal/neuron"
)

// mark is the size of a feed as it was after a turn: what came later is the difference to now.
type mark struct {
	Turn    uint64 `json:"t"` // incoming sequence of the turn
	Entries uint64 `json:"n"`
	Bytes   uint64 `json:"b"`
}

// marks tell trimming which rows no window reaches any more, without a look at the rows. Their number is bounded: one is
// set after at least a markStep-th of the window, and those before the last useful one are dropped.
type marks struct {
	In  []mark `json:"in,omitempty"`
	Out []mark `json:"out,omitempty"`
}

const markStep = 8

// set records the size of a feed and returns the newest turn that lies wholly before its window, 0 if there is none.
func set(list []mark, now mark, l neuron.Limits) ([]mark, uint64) {
	if n := len(list); n > 0 && now.Entries-list[n-1].Entries < uint64(l.JournalEntries/markStep) && now.Bytes-list[n-1].Bytes < uint64(l.JournalBytes/markStep) {
		list = list[:n] // too near the last one
	} else {
		list = append(list, now)
	}
	cut := -1
	for i, m := range list {
		if now.Entries-m.Entries >= uint64(l.JournalEntries) || now.Bytes-m.Bytes >= uint64(l.JournalBytes) {
			cut = i
		}
	}
	if cut < 0 {
		return list, 0
	}
	return list[cut:], list[cut].Turn
}

const (
	selectNeuron = `select in_seq, kept, marks from neuron where key = ?`
	sumTurns     = `select count(*), coalesce(sum(length(incoming)), 0), coalesce(sum(length(outgoing)), 0) from turn
		where neuron = ? and seq > ?`
	updateNeuron = `update neuron set in_seq = ?, out_seq = ?, tallies = ?, state_alias = ?, state = ?, kept = ?, marks = ? where key = ?`
	trimBoth     = `delete from turn where neuron = ? and seq <= ? returning delivery_id`
	trimIn       = `delete from turn where neuron = ? and seq > ? and seq <= ? and outgoing is null returning delivery_id`
	insertSeen   = `insert into seen (neuron, segment, ids) values (?, ?, ?)`
	deleteSeen   = `delete from seen where neuron = ? and segment <= ?`
)

// writeCheckpoint writes the neuron's row and, in the same commit, takes away the turn rows that neither feed's window
// reaches; their delivery ids stay in a segment for the dedupe window.
func (s *Store) writeCheckpoint(ctx context.Context, key int64, c *neuron.Checkpoint) error {
	var before, kept uint64
	var m sizes
	if err := s.one(ctx, selectNeuron, []any{key}, func(v []driver.Value) error {
		before, kept = uint64(v[0].(int64)), uint64(v[1].(int64))
		return json.Unmarshal([]byte(v[2].(string)), &m)
	}); err != nil {
		return err
	}
	if err := s.one(ctx, sumTurns, []any{key, int64(before)}, func(v []driver.Value) error {
		m.InBytes += uint64(v[1].(int64))
		m.OutBytes += uint64(v[2].(int64))
		return nil
	}); err != nil {
		return err
	}
	var inCut, outCut uint64
	l := s.options.Limits
	m.In, inCut = set(m.In, mark{c.InSeq, c.InSeq, m.InBytes}, l)
	m.Out, outCut = set(m.Out, mark{c.InSeq, c.OutSeq, m.OutBytes}, l)
	if err := s.trim(ctx, key, c.InSeq, kept, inCut, outCut); err != nil {
		return err
	}
	tallies, err := json.Marshal(c.Tallies)
	if err != nil {
		return err
	}
	sizes, err := json.Marshal(m)
	if err != nil {
		return err
	}
	var state any
	if c.StateAlias != "" {
		state = c.State
	}
	n, err := s.w.exec(ctx, updateNeuron, int64(c.InSeq), int64(c.OutSeq), string(tallies), c.StateAlias, state,
		int64(max(kept, inCut+1)), string(sizes), key)
	if err == nil && n != 1 {
		err = fmt.Errorf("no row has key %d", key)
	}
	return err
}

// sizes are the marks and the bytes that each feed has ever held.
type sizes struct {
	marks
	InBytes  uint64 `json:"in_bytes,omitempty"`
	OutBytes uint64 `json:"out_bytes,omitempty"`
}

// trim deletes the rows up to which both feeds are past their windows, and those past the incoming one that sent nothing.
func (s *Store) trim(ctx context.Context, key int64, now, kept, inCut, outCut uint64) error {
	var ids []byte
	gather := func(v []driver.Value) error {
		ids = append(ids, v[0].([]byte)...)
		return nil
	}
	both := min(inCut, outCut)
	if both > 0 {
		if err := s.w.each(ctx, trimBoth, []any{key, int64(both)}, gather); err != nil {
			return err
		}
	}
	if from := max(both, kept-1); inCut > from {
		if err := s.w.each(ctx, trimIn, []any{key, int64(from), int64(inCut)}, gather); err != nil {
			return err
		}
	}
	if len(ids) == 0 {
		return nil
	}
	if _, err := s.w.exec(ctx, insertSeen, key, int64(now), ids); err != nil {
		return err
	}
	window := uint64(s.options.Limits.DedupeWindow)
	if now <= window {
		return nil
	}
	// A segment's ids are older than its number, so what goes lies outside the window.
	_, err := s.w.exec(ctx, deleteSeen, key, int64(now-window))
	return err
}

func (s *Store) one(ctx context.Context, text string, args []any, row func(v []driver.Value) error) error {
	found := false
	err := s.w.each(ctx, text, args, func(v []driver.Value) error {
		found = true
		return row(v)
	})
	if err == nil && !found {
		err = errNoRow
	}
	return err
}
