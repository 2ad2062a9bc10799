package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"soma/ident"
	"soma/internal/crash"
	"soma/internal/neuron"
)

const (
	// fenceText fails unless the node holds all the places of the group under the epochs that it believes in. The lock keeps
	// a takeover waiting until this transaction ends. A weaker lock, or none, would let it go by; a count that the client
	// compares would come too late, for the commit is on its way with the question.
	fenceText = `select 1 / (case when count(*) = $1 then 1 else 0 end) from (
		select 1 from lease l join unnest($2::bigint[], $3::bigint[]) h (place, epoch) on l.place = h.place and l.epoch = h.epoch
		where l.holder = $4 and exists (select 1 from node where id = $4 and epoch = $5) order by l.place for share of l) held`
	findDelivered = `select delivery_id from turn where delivery_id = any($1)`

	// retries bounds how often a group is sent again that a lock, a deadlock or a lost connection kept from being applied.
	retries    = 8
	retryFirst = 10 * time.Millisecond
)

// Commit sends the whole group, its fence first, as one pipelined transaction. Where a lock or the connection was in the way
// and nothing was applied, it tries again for a while.
func (s *Store) Commit(ctx context.Context, fence neuron.Fence, group []*neuron.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.failed != nil:
		return s.failed
	case ctx.Err() != nil:
		return ctx.Err()
	}
	for _, r := range group {
		if !fence.Places.Has(r.Place) {
			return neuron.ErrFenced
		}
	}
	if i, err := twice(group); err != nil {
		return &neuron.RecordError{Index: i, Err: err}
	}
	if fence.Places != s.places { // places have come and gone: others may have given numbers
		s.counts.Forget()
		s.places = fence.Places
	}
	ctx = context.WithoutCancel(ctx) // an interrupted commit would leave its outcome open
	err := s.persist(ctx, fence, group)
	if err != nil {
		s.counts.Forget()
		return err
	}
	s.counts.Keep()
	return nil
}

// twice finds a delivery that the group holds twice.
func twice(group []*neuron.Record) (int, error) {
	if len(group) == 1 {
		return 0, nil
	}
	ids := make(map[ident.ID]struct{}, len(group))
	for i, r := range group {
		if r.Turn == nil || r.Turn.IsStep() || crash.Off(crash.DedupeOff) {
			continue
		}
		if _, ok := ids[r.Turn.DeliveryID]; ok {
			return i, neuron.ErrDuplicate
		}
		ids[r.Turn.DeliveryID] = struct{}{}
	}
	return 0, nil
}

// persist tries until the group is committed, refused, or patience ends.
func (s *Store) persist(ctx context.Context, fence neuron.Fence, group []*neuron.Record) error {
	wait := retryFirst
	for began, tries := time.Now(), 1; ; tries++ {
		err := s.try(ctx, fence, group)
		var f *failed
		if !errors.As(err, &f) {
			return err
		}
		switch f.fault {
		case unknown:
			return fmt.Errorf("cannot commit a group: %w: %w", neuron.ErrOutcomeUnknown, f.err)
		case transient:
			// A server that is away is waited for by time, whatever is in the way of one that answers by tries.
			if away := broken(f.err); away && time.Since(began) < s.patience || !away && tries < retries {
				break
			}
			if broken(f.err) {
				s.failed = failure("reach PostgreSQL", f.err)
				return s.failed
			}
			return fmt.Errorf("cannot commit a group, tried %d times: %w", tries, f.err)
		default:
			s.failed = failure("commit a group", f.err)
			return s.failed
		}
		pause := time.NewTimer(wait/2 + rand.N(wait))
		<-pause.C
		wait = min(2*wait, time.Second)
	}
}

// try sends the group once.
func (s *Store) try(ctx context.Context, fence neuron.Fence, group []*neuron.Record) error {
	ctx, cancel := context.WithTimeout(ctx, commitTime)
	defer cancel()
	s.counts.Drop()
	return s.writer.use(ctx, func(w *session) error {
		b := &batch{s: w, texts: &s.texts}
		if err := s.fill(ctx, b, fence, group); err != nil {
			return err
		}
		err := b.run(ctx)
		switch {
		case hasCode(err, divisionByZero) && !isRecord(err):
			return neuron.ErrFenced // the fence is the only statement of the group's own that can fail so
		case hasCode(err, uniqueViolation) && !isRecord(err):
			return s.duplicate(ctx, w, group, err)
		}
		return err
	})
}

func isRecord(err error) bool {
	var r *neuron.RecordError
	return errors.As(err, &r)
}

// fill makes the statements: the fence, shared ops in the order of their locks, all turn rows at once, and what else the
// records write, in their order.
func (s *Store) fill(ctx context.Context, b *batch, fence neuron.Fence, group []*neuron.Record) error {
	if !crash.Off(crash.FenceOff) {
		if err := s.addFence(ctx, b, fence, group); err != nil {
			return err
		}
	}
	for _, op := range neuron.SharedOps(group) {
		if err := b.op(ctx, op.Record, op.Op); err != nil {
			return err
		}
	}
	if err := s.addTurns(ctx, b, group); err != nil {
		return err
	}
	past, err := s.ask(ctx, b.s, group)
	if err != nil {
		return err
	}
	for i, r := range group {
		if i == (len(group)-1)/2 {
			crash.Point(crash.GroupMid)
		}
		if err := s.addRecord(ctx, b, past, i, r); err != nil {
			return err
		}
	}
	return s.addCounters(ctx, b)
}

func (s *Store) addFence(ctx context.Context, b *batch, fence neuron.Fence, group []*neuron.Record) error {
	var in neuron.PlaceSet
	for _, r := range group {
		in.Add(r.Place)
	}
	places := make([]int64, 0, neuron.Places)
	for p := range in.All() {
		places = append(places, int64(p))
	}
	n := len(places)
	return b.add(ctx, none, "check the places", fenceText, int64(n), integers(n, func(i int) int64 { return places[i] }),
		integers(n, func(i int) int64 { return int64(fence.Places[places[i]]) }), fence.Node, int64(fence.Epoch))
}

// duplicate finds out whose delivery is settled already.
func (s *Store) duplicate(ctx context.Context, w *session, group []*neuron.Record, cause error) error {
	of := map[ident.ID]int{}
	var ids []ident.ID
	for i, r := range group {
		if r.Turn != nil && !r.Turn.IsStep() {
			of[r.Turn.DeliveryID] = i
			ids = append(ids, r.Turn.DeliveryID)
		}
	}
	first := len(group)
	r, err := w.exec(ctx, findDelivered, byteas(len(ids), func(i int) []byte { return ids[i][:] }))
	if err != nil {
		return &failed{transient, err} // nothing was applied
	}
	for _, row := range r.Rows {
		id, err := ident.FromBytes(row[0])
		if err != nil {
			return &failed{fatal, err}
		}
		first = min(first, of[id])
	}
	if first == len(group) {
		return &failed{transient, cause}
	}
	return &neuron.RecordError{Index: first, Err: neuron.ErrDuplicate}
}

// addCounters saves the counters that moved. A failure is laid to the last record that used the counter.
func (s *Store) addCounters(ctx context.Context, b *batch) error {
	for _, m := range s.counts.Moved() {
		if err := b.one(ctx, m.Record, m.Lost(), "save counter "+m.Key.Name, m.Save, int64(m.Last), m.Key.Of); err != nil {
			return err
		}
	}
	return nil
}
