package sqlite

import (
	"context"
	"errors"
	"fmt"

	"soma/internal/crash"
	"soma/internal/neuron"
)

var errClosed = errors.New("the store is closed")

// Claim takes all places for node under a new epoch. On one file there is one owner at a time: a claim fences all earlier
// ones, whatever their node; rows of nodes that have been silent for neuron.NodeKept go.
func (s *Store) Claim(ctx context.Context, node string) (neuron.Fence, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var f neuron.Fence
	err := s.transact(ctx, "claim the places", func(ctx context.Context) error {
		last, err := s.w.number(ctx, "select coalesce(max(epoch), 0) from node")
		if err != nil {
			return err
		}
		f = neuron.Fence{Node: node, Epoch: uint64(last) + 1, Places: neuron.AllUnder(uint64(last) + 1)}
		_, err = s.w.exec(ctx, `insert into node (id, epoch, started_at) values (?, ?, ?)
			on conflict (id) do update set epoch = excluded.epoch, started_at = excluded.started_at`,
			node, int64(f.Epoch), s.options.Now().UnixMicro())
		if err != nil {
			return err
		}
		_, err = s.w.exec(ctx, `with recursive p (n) as (select 0 union all select n + 1 from p where n + 1 < ?)
			insert into lease (place, holder, epoch) select n, ?, ? from p where true
			on conflict (place) do update set holder = excluded.holder, epoch = excluded.epoch`,
			int64(neuron.Places), node, int64(f.Epoch))
		if err != nil {
			return err
		}
		// The row with the greatest epoch is the one that stays, so no epoch is given twice.
		_, err = s.w.exec(ctx, `delete from node where id in (
			select id from node where id <> ? and max(beat, started_at) < ? order by id limit 256)`,
			node, s.options.Now().Add(-neuron.NodeKept).UnixMicro())
		return err
	})
	if err != nil {
		return neuron.Fence{}, err
	}
	return f, nil
}

// Commit applies the group. The fence of the one owner is its life: it holds every place. Once an I/O error, a full disk or a damaged file was met it returns that error for ever: what
// the operating system still holds of a failed fsync is not known, a restart reads what the disk holds.
func (s *Store) Commit(ctx context.Context, fence neuron.Fence, group []*neuron.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	pos := s.pos
	err := s.transact(ctx, "commit a group", func(ctx context.Context) error {
		n, err := s.w.number(ctx, `select count(*) from node
			where id = ? and epoch = ? and epoch = (select max(epoch) from node)`, fence.Node, int64(fence.Epoch))
		if err != nil {
			return err
		}
		if n != 1 {
			return neuron.ErrFenced
		}
		for _, op := range neuron.SharedOps(group) {
			if err := s.run(ctx, op.Op); err != nil {
				return lay(op.Record, err)
			}
		}
		turns := 0
		for i, r := range group {
			if r.Turn != nil {
				pos++
				turns++
				r.Turn.Pos = pos
			}
			if err := s.write(ctx, i, r); err != nil {
				return lay(i, err)
			}
			if i == (len(group)-1)/2 {
				crash.Point(crash.GroupMid)
			}
		}
		if i, err := s.saveCounters(ctx); err != nil {
			return lay(i, err)
		}
		return s.past.delete(ctx, s.w, turns)
	})
	if err != nil {
		s.counts.Drop()
		s.past.drop()
		return err
	}
	s.pos = pos
	s.counts.Keep()
	s.past.keep()
	return nil
}

// lay makes an error one of the record, where it is.
func lay(record int, err error) error {
	if blames(err) {
		return &neuron.RecordError{Index: record, Err: err}
	}
	return err
}

// transact runs fn in one transaction. The caller holds the lock. A refused record and a lost fence leave the store usable,
// any other error of fn ends it.
func (s *Store) transact(ctx context.Context, what string, fn func(context.Context) error) error {
	switch {
	case s.failed != nil:
		return s.failed
	case s.closed:
		return errClosed
	case ctx.Err() != nil:
		return ctx.Err()
	}
	// A cancelled transaction would leave its outcome open, and a context that can end costs a goroutine a statement.
	ctx = context.WithoutCancel(ctx)
	if err := s.w.begin(ctx); err != nil {
		s.failed = failure(what, err)
		return s.failed
	}
	if err := fn(ctx); err != nil {
		rerr := s.w.rollback(ctx)
		var record *neuron.RecordError
		switch {
		case !errors.As(err, &record) && !errors.Is(err, neuron.ErrFenced):
			s.failed = failure(what, err) // SQLite may have rolled back by itself, so rerr says nothing
		case rerr != nil:
			s.failed = failure(what, rerr)
		default:
			return err
		}
		return s.failed
	}
	if err := s.w.commit(ctx); err != nil {
		s.failed = fmt.Errorf("%w: %w", failure(what, err), neuron.ErrOutcomeUnknown)
		return s.failed
	}
	if err := s.checkpoint.committed(ctx, s.w); err != nil {
		s.failed = failure("move the WAL into the database", err)
	}
	return nil
}
