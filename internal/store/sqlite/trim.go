package sqlite

import (
	"bytes"
	"context"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"slices"

	"soma/internal/crash"
	"soma/internal/neuron"
	"soma/internal/store/window"
)

const (
	selectNeuron = `select in_seq, marks, latest from neuron where key = ?`
	// selectSince reads the turns since the checkpoint before: few, and the newest.
	selectSince  = `select delivery_id, coalesce(length(incoming), 0), coalesce(length(outgoing), 0) from turn where neuron = ? and seq > ?`
	updateNeuron = `update neuron set in_seq = ?, out_seq = ?, tallies = ?, marks = ?, latest = ?, state_alias = ?, state = ?
		where key = ?`
	insertSeen   = `insert into seen (neuron, segment, ids) values (?, ?, ?)`
	deleteSeen   = `delete from seen where neuron = ? and segment <= ?`
	selectPast   = `select pos from turn where neuron = ? and seq > ? and seq <= ?`
	selectPastIn = `select pos from turn where neuron = ? and seq > ? and seq <= ? and outgoing is null`
	deleteTurns  = `delete from turn where pos between ? and ?`
)

// writeCheckpoint writes the neuron's row, keeps the delivery ids of the turns since the one before in a segment, and
// remembers which turn rows have left both windows.
func (s *Store) writeCheckpoint(ctx context.Context, key int64, c *neuron.Checkpoint) error {
	before, m := int64(-1), window.Marks{}
	var latest []byte
	if err := s.w.each(ctx, selectNeuron, []any{key}, func(v []driver.Value) error {
		before, latest = v[0].(int64), v[2].([]byte)
		return json.Unmarshal([]byte(v[1].(string)), &m)
	}); err != nil {
		return err
	}
	if before < 0 {
		return fmt.Errorf("no row has key %d", key)
	}
	var ids []byte
	if err := s.w.each(ctx, selectSince, []any{key, before}, func(v []driver.Value) error {
		id, _ := v[0].([]byte) // a step has none
		if ids = append(ids, id...); bytes.Compare(id, latest) > 0 {
			latest = id
		}
		m.InBytes += uint64(v[1].(int64))
		m.OutBytes += uint64(v[2].(int64))
		return nil
	}); err != nil {
		return err
	}
	if err := s.writeSeen(ctx, key, int64(c.InSeq), ids); err != nil {
		return err
	}
	var inCut, outCut uint64
	m.In, inCut = window.Set(m.In, window.Mark{Turn: c.InSeq, Entries: c.InSeq, Bytes: m.InBytes}, s.options.Limits)
	m.Out, outCut = window.Set(m.Out, window.Mark{Turn: c.InSeq, Entries: c.OutSeq, Bytes: m.OutBytes}, s.options.Limits)
	if c.OutSeq == 0 {
		outCut = c.InSeq
	}
	if err := s.past.gather(ctx, s.w, key, int64(inCut), int64(outCut)); err != nil {
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
	_, err = s.w.exec(ctx, updateNeuron, int64(c.InSeq), int64(c.OutSeq), string(tallies), string(sizes), present(latest),
		c.StateAlias, state, key)
	crash.Point(crash.CheckpointMid)
	return err
}

// writeSeen keeps the ids for the dedupe window, whenever their turn rows go.
func (s *Store) writeSeen(ctx context.Context, key, now int64, ids []byte) error {
	if len(ids) == 0 {
		return nil
	}
	if _, err := s.w.exec(ctx, insertSeen, key, now, ids); err != nil {
		return err
	}
	out := now - int64(s.options.Limits.DedupeWindow)
	if out <= 0 {
		return nil
	}
	_, err := s.w.exec(ctx, deleteSeen, key, out)
	return err
}

const (
	// pastBatch is how many rows gather before they are deleted. Rows of one neuron lie a page each; those of many, taken
	// in order of position, lie side by side: with 64 busy neurons that halves what a commit writes.
	pastBatch = 16 << 10
	// pastMost bounds the positions in memory, in batches. What is not gathered now is with the neuron's next checkpoint.
	pastMost = 4
	// pastLeast is how many rows of a batch go in one commit at least.
	pastLeast = 64
)

// cuts are how far the rows of one neuron are gathered: up to both whatever they hold, up to in those that sent nothing.
type cuts struct{ both, in int64 }

// past are the turn rows that no window reaches. Commits delete them bit by bit, in the order of their positions. After a
// restart the next checkpoint of a neuron finds what was not deleted.
type past struct {
	enough int // rows that make a batch
	rows   []int64
	upTo   map[int64]cuts
	batch  []int64 // sorted, being deleted
	inWork map[int64]cuts

	undo struct { // what the group under way has changed
		rows int
		upTo map[int64]cuts
	}
	gone int // of the batch, with the group under way
}

func (p *past) gather(ctx context.Context, w *writer, key, inCut, outCut int64) error {
	if len(p.rows) >= pastMost*p.enough {
		return nil
	}
	had, ok := p.upTo[key]
	if !ok {
		had = p.inWork[key]
	}
	add := func(v []driver.Value) error {
		p.rows = append(p.rows, v[0].(int64))
		return nil
	}
	now := cuts{both: max(had.both, min(inCut, outCut)), in: max(had.in, inCut)}
	if now.both > had.both {
		if err := w.each(ctx, selectPast, []any{key, had.both, now.both}, add); err != nil {
			return err
		}
	}
	if from := max(now.both, had.in); now.in > from {
		if err := w.each(ctx, selectPastIn, []any{key, from, now.in}, add); err != nil {
			return err
		}
	}
	if now == had {
		return nil
	}
	if p.upTo == nil {
		p.upTo, p.undo.upTo = map[int64]cuts{}, map[int64]cuts{}
	}
	if _, ok := p.undo.upTo[key]; !ok {
		p.undo.upTo[key] = p.upTo[key]
	}
	p.upTo[key] = now
	return nil
}

// delete takes the next rows of the batch away: twice as many as came in, so that a batch ends.
func (p *past) delete(ctx context.Context, w *writer, came int) error {
	if len(p.batch) == 0 {
		return nil
	}
	p.gone = min(len(p.batch), max(2*came, pastLeast))
	now := p.batch[:p.gone]
	for len(now) > 0 {
		n := 1
		for n < len(now) && now[n] == now[n-1]+1 {
			n++
		}
		if _, err := w.exec(ctx, deleteTurns, now[0], now[n-1]); err != nil {
			return err
		}
		crash.Point(crash.TrimMid)
		now = now[n:]
	}
	return nil
}

// keep is called when the group is committed, drop when it is not.
func (p *past) keep() {
	p.batch = p.batch[p.gone:]
	p.gone = 0
	if len(p.batch) == 0 && len(p.rows) >= p.enough {
		slices.Sort(p.rows)
		p.batch, p.inWork = slices.Compact(p.rows), p.upTo
		p.rows, p.upTo = nil, map[int64]cuts{}
	}
	p.undo.rows = len(p.rows)
	clear(p.undo.upTo)
}

func (p *past) drop() {
	p.gone = 0
	p.rows = p.rows[:p.undo.rows]
	for key, had := range p.undo.upTo {
		if p.upTo[key] = had; had == (cuts{}) {
			delete(p.upTo, key)
		}
	}
	clear(p.undo.upTo)
}
