package postgres

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"soma/internal/crash"
	"soma/internal/neuron"
	"soma/internal/store/counter"
	"soma/internal/store/window"
)

const (
	// selectPast reads what checkpoints start from: the row of the one before, and the turns since.
	selectPast = `select n.key, n.in_seq, n.marks, n.latest, t.delivery_id, coalesce(length(t.incoming), 0), coalesce(length(t.outgoing), 0)
		from neuron n left join turn t on t.neuron = n.key and t.seq > n.in_seq where n.key = any($1) order by n.key, t.seq, t.pos`
	updateNeuron = `update neuron set in_seq = ?, out_seq = ?, tallies = ?, marks = ?, latest = ?, state_alias = ?, state = ?
		where key = ?`
	insertSeen    = `insert into seen (neuron, segment, ids) values (?, ?, ?)`
	deleteSeen    = `delete from seen where neuron = ? and segment <= ?`
	deleteTurns   = `delete from turn where neuron = ? and seq <= ?`
	deleteTurnsIn = `delete from turn where neuron = ? and seq > ? and seq <= ? and outgoing is null`
)

// past is what of a neuron lies between its last checkpoint and the record at hand.
type past struct {
	marks  window.Marks
	latest []byte
	ids    []byte // one after the other
}

// pasts are those of the neurons that a group makes checkpoints of.
type pasts struct{ of map[int64]*past }

// turn counts a row of the group.
func (p *pasts) turn(key int64, t *neuron.TurnRow) {
	if n, ok := p.of[key]; ok {
		var id []byte
		if !t.IsStep() {
			id = t.DeliveryID[:]
		}
		n.add(id, len(t.Incoming), len(t.Outgoing))
	}
}

func (n *past) add(id []byte, in, out int) {
	n.ids = append(n.ids, id...)
	if bytes.Compare(id, n.latest) > 0 {
		n.latest = bytes.Clone(id)
	}
	n.marks.InBytes += uint64(in)
	n.marks.OutBytes += uint64(out)
}

// ask reads, before the group is sent, what its statements depend on: counters that are not known yet, and the state of
// neurons that get a checkpoint. Nobody else changes either while the fence holds; where it does not the group fails.
func (s *Store) ask(ctx context.Context, w *session, group []*neuron.Record) (*pasts, error) {
	var keys []int64
	p := &pasts{of: map[int64]*past{}}
	for i, r := range group {
		if r.Checkpoint != nil && p.of[r.Key] == nil {
			p.of[r.Key] = &past{}
			keys = append(keys, r.Key)
		}
		for _, op := range r.Ops {
			if n, ok := op.(neuron.Numbered); ok {
				if err := s.load(ctx, w, i, n); err != nil {
					return nil, err
				}
			}
		}
	}
	if len(keys) == 0 {
		return p, nil
	}
	r, err := w.exec(ctx, selectPast, integers(len(keys), func(i int) int64 { return keys[i] }))
	if err != nil {
		return nil, &failed{unread(err), fmt.Errorf("cannot read the last checkpoints: %w", err)}
	}
	var last int64
	for _, row := range r.Rows {
		key := int64(binary.BigEndian.Uint64(row[0]))
		n := p.of[key]
		if key != last {
			last = key
			n.latest = row[3]
			if err := json.Unmarshal(row[2], &n.marks); err != nil {
				return nil, &failed{fatal, fmt.Errorf("cannot read the marks of neuron %d: %w", key, err)}
			}
		}
		n.add(row[4], int(binary.BigEndian.Uint32(row[5])), int(binary.BigEndian.Uint32(row[6])))
	}
	return p, nil
}

// unread judges an error of a read: nothing of the group was sent.
func unread(err error) fault {
	if f := judge(err, false); f != unknown {
		return f
	}
	return transient
}

// load makes a counter known.
func (s *Store) load(ctx context.Context, w *session, record int, op neuron.Numbered) error {
	name, key := op.Sequence()
	err := s.counts.Load(counter.Key{Name: name, Of: key}, func(query string) (int64, error) {
		n, err := w.number(ctx, s.texts.of(query), key)
		if err != nil {
			err = &failed{unread(err), err}
		}
		return n, err
	})
	var f *failed
	if err == nil || errors.As(err, &f) {
		return err
	}
	return &neuron.RecordError{Index: record, Err: err}
}

// addCheckpoint writes the neuron's row, keeps the delivery ids of the turns since the one before in a segment, and deletes
// the turn rows that have left both windows.
func (s *Store) addCheckpoint(ctx context.Context, b *batch, past *pasts, i int, r *neuron.Record) error {
	const what = "write a checkpoint"
	n, c := past.of[r.Key], r.Checkpoint
	crash.Point(crash.CheckpointMid)
	now := int64(c.InSeq)
	if len(n.ids) > 0 {
		if err := b.add(ctx, i, what, insertSeen, r.Key, now, n.ids); err != nil {
			return err
		}
		n.ids = nil
	}
	if out := now - int64(s.limits.DedupeWindow); out > 0 {
		if err := b.add(ctx, i, what, deleteSeen, r.Key, out); err != nil {
			return err
		}
	}
	var inCut, outCut uint64
	n.marks.In, inCut = window.Set(n.marks.In, window.Mark{Turn: c.InSeq, Entries: c.InSeq, Bytes: n.marks.InBytes}, s.limits)
	n.marks.Out, outCut = window.Set(n.marks.Out, window.Mark{Turn: c.InSeq, Entries: c.OutSeq, Bytes: n.marks.OutBytes}, s.limits)
	if c.OutSeq == 0 {
		outCut = c.InSeq
	}
	both := int64(min(inCut, outCut))
	if both > 0 {
		crash.Point(crash.TrimMid)
		if err := b.add(ctx, i, what, deleteTurns, r.Key, both); err != nil {
			return err
		}
	}
	if in := int64(inCut); in > both {
		if err := b.add(ctx, i, what, deleteTurnsIn, r.Key, both, in); err != nil {
			return err
		}
	}
	tallies, err := json.Marshal(c.Tallies)
	if err != nil {
		return &neuron.RecordError{Index: i, Err: err}
	}
	sizes, err := json.Marshal(n.marks)
	if err != nil {
		return &neuron.RecordError{Index: i, Err: err}
	}
	var state any
	if c.StateAlias != "" {
		state = c.State
	}
	return b.one(ctx, i, fmt.Errorf("no row has key %d", r.Key), what, updateNeuron, now, int64(c.OutSeq), tallies, sizes,
		present(n.latest), c.StateAlias, state, r.Key)
}
