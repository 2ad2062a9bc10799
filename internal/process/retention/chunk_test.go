package retention_test

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"

	"soma/ident"
	"soma/internal/neuron"
	"soma/wire"
)

// scale looks after each commit how many rows it has taken from the tables that a removal empties.
type scale struct {
	neuron.Store
	on     atomic.Bool
	before int64
	most   atomic.Int64
}

const weighed = `select (select count(*) from message) + (select count(*) from event) + (select count(*) from input) + (select count(*) from content)
	+ (select count(*) from cell) + (select count(*) from ledger) + (select count(*) from tool_call)`

func (s *scale) Commit(ctx context.Context, fence neuron.Fence, group []*neuron.Record) error {
	err := s.Store.Commit(ctx, fence, group)
	if err != nil || !s.on.Load() {
		return err
	}
	now := int64(0)
	if err := s.Query(ctx, weighed, nil, func(scan func(...any) error) error { return scan(&now) }); err != nil {
		return err
	}
	s.most.Store(max(s.most.Load(), s.before-now))
	s.before = now
	return nil
}

// S-62: no commit of a removal takes more than 256 rows, whichever table they are in and whatever they take along.
func TestRemovalIsWeighed(t *testing.T) {
	w := onSQLite(t)
	w.stop()
	open, s := w.open, &scale{}
	w.open = func(sequences []neuron.Sequence) (store neuron.Store, err error) {
		s.Store, err = open(sequences)
		return s, err
	}
	w.start()
	w.run("a", "work", "i1")
	var branch []byte
	w.must(w.store.Query(t.Context(), `select branch from session where id = 'a'`, nil, func(scan func(...any) error) error {
		var b []byte
		err := scan(&b)
		branch = bytes.Clone(b)
		return err
	}))
	for n := range int64(700) {
		id := ident.New(now())
		w.later(`insert into content (id, size, bytes, payload) values (?, 1, ?, 0)`, id[:], []byte("x"))
		w.later(`insert into message (branch, seq, id, role, body, content, attempt, at) values (?, ?, ?, 'note', ?, ?, 0, 0)`, branch, 1000+n, id[:], []byte("{}"), id[:])
		w.later(`insert into event (session, seq, pid, kind, body, at) values ('a', ?, 0, 'note', ?, ?)`, 1000+n, []byte("{}"), now().UnixMicro())
		w.later(`insert into input (session, client_id, id, pid, mode, state, text, at) values ('a', ?, ?, 1, 'steer', 'delivered', 'x', 0)`, id.String(), id[:])
	}
	w.now()
	w.calm("a")
	s.before = w.one(weighed)
	s.on.Store(true)
	r, err := w.remove("a", wire.Remove{})
	s.on.Store(false)
	w.must(err)
	if left := w.one(weighed); left != 0 || r.State != wire.Removed {
		t.Errorf("%d rows are left, %+v", left, r)
	}
	if most := s.most.Load(); most > 256 || most < 200 {
		t.Errorf("one commit has taken %d rows", most)
	}
}
