package sqlite

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"soma/ident"
	"soma/internal/neuron"
)

// turns makes n records of one neuron from sequence from+1 on, a checkpoint at every 64th.
func turns(key int64, from, n, payload int) []*neuron.Record {
	var out []*neuron.Record
	id := neuron.ID{Owner: "me", Kind: "test", Key: fmt.Sprint(key)}
	body := []byte(`{"alias":"test.v1","payload":"` + strings.Repeat("x", payload) + `"}`)
	for seq := uint64(from) + 1; seq <= uint64(from+n); seq++ {
		r := &neuron.Record{Neuron: id, Key: key, New: seq == 1, Turn: &neuron.TurnRow{Seq: seq, DeliveryID: ident.Named(id.Key, fmt.Sprint(seq)),
			Incoming: body, OutFirst: 1}}
		if seq%64 == 0 {
			r.Checkpoint = &neuron.Checkpoint{InSeq: seq, Tallies: neuron.Tallies{In: map[string]uint64{"test.v1": seq}}}
		}
		out = append(out, r)
	}
	return out
}

func claimed(t testing.TB, s *Store) neuron.Fence {
	t.Helper()
	f, err := s.Claim(t.Context(), "node")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// N-35: on one file a claim of any node fences all earlier ones.
func TestOtherNodeFences(t *testing.T) {
	s := mustOpen(t, dbPath(t), Options{})
	old := claimed(t, s)
	now, err := s.Claim(t.Context(), "another")
	if err != nil || now.Epoch <= old.Epoch {
		t.Fatalf("claim: %+v, %v", now, err)
	}
	if err := s.Commit(t.Context(), old, turns(1, 0, 1, 0)); !errors.Is(err, neuron.ErrFenced) {
		t.Errorf("the old node commits: %v", err)
	}
	if err := s.Commit(t.Context(), now, turns(1, 0, 1, 0)); err != nil {
		t.Error(err)
	}
	places, err := s.w.number(t.Context(), "select count(*) from lease where holder = 'another' and epoch = ?", int64(now.Epoch))
	if err != nil || places != neuron.Places {
		t.Errorf("%d places leased, %v", places, err)
	}
}

// N-33: a full disk ends the store for good; what was committed is there after a new start.
func TestFullDisk(t *testing.T) {
	path := dbPath(t)
	s := mustOpen(t, path, Options{})
	f := claimed(t, s)
	if err := s.Commit(t.Context(), f, turns(1, 0, 10, 100)); err != nil {
		t.Fatal(err)
	}
	pages, err := s.w.number(t.Context(), "pragma page_count")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.w.pragma(t.Context(), fmt.Sprintf("max_page_count = %d", pages+2)); err != nil {
		t.Fatal(err)
	}
	failed := s.Commit(t.Context(), f, turns(1, 10, 100, 1000))
	var record *neuron.RecordError
	if !errors.Is(failed, neuron.ErrStoreFailed) || errors.As(failed, &record) ||
		!strings.Contains(failed.Error(), "database or disk is full") || strings.Contains(failed.Error(), "\n") {
		t.Fatalf("commit on a full disk: %v", failed)
	}
	if err := s.w.pragma(t.Context(), "max_page_count = 1000000"); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(t.Context(), f, turns(1, 10, 1, 0)); err == nil || err.Error() != failed.Error() {
		t.Errorf("the failed store goes on: %v", err)
	}
	if _, err := s.Claim(t.Context(), "node"); !errors.Is(err, neuron.ErrStoreFailed) {
		t.Errorf("the failed store gives places: %v", err)
	}
	check := func(s *Store) {
		t.Helper()
		n, err := s.Neuron(t.Context(), neuron.ID{Owner: "me", Kind: "test", Key: "1"})
		if err != nil || n.InSeq != 10 {
			t.Errorf("the neuron is at %d, %v, want 10", n.InSeq, err)
		}
	}
	check(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, path, Options{})
	check(s)
	if err := s.Commit(t.Context(), claimed(t, s), turns(1, 10, 100, 1000)); err != nil {
		t.Error(err)
	}
}

// A commit that fails itself leaves its outcome open.
func TestFailedCommit(t *testing.T) {
	s := mustOpen(t, dbPath(t), Options{Migrations: withSuite(t)})
	f := claimed(t, s)
	if err := s.w.script(t.Context(), `create table parent (id integer primary key);
		create table child (id integer references parent (id) deferrable initially deferred); pragma foreign_keys = on`); err != nil {
		t.Fatal(err)
	}
	r := turns(1, 0, 1, 0)
	r[0].Ops = []neuron.Op{orphan{}}
	if err := s.Commit(t.Context(), f, r); !errors.Is(err, neuron.ErrOutcomeUnknown) || !errors.Is(err, neuron.ErrStoreFailed) {
		t.Errorf("commit: %v", err)
	}
}

type orphan struct{}

func (orphan) SQL() string { return "insert into child (id) values (1)" }
func (orphan) Args() []any { return nil }

// N-35: the WAL stays bounded while commits go on, and a reader that blocks it is not waited for long.
func TestWALBound(t *testing.T) {
	s := mustOpen(t, dbPath(t), Options{})
	f := claimed(t, s)
	s.checkpoint.most, s.checkpoint.limit = 2000, 2000
	size := func() int64 {
		t.Helper()
		info, err := os.Stat(s.path + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	at := 0
	commit := func() {
		t.Helper()
		if err := s.Commit(t.Context(), f, turns(1, at, 10, 40_000)); err != nil {
			t.Fatal(err)
		}
		at += 10
	}
	pin := func() *sql.Tx {
		t.Helper()
		tx, err := s.reads.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var n int
		if err := tx.QueryRowContext(t.Context(), "select count(*) from turn").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return tx
	}
	// As under load the passive checkpoint never quite catches up: a reader keeps the last commit from it.
	write := func(rounds int) {
		t.Helper()
		for range rounds {
			commit()
			tx := pin()
			commit()
			if err := errors.Join(s.checkpoint.passive(t.Context()), tx.Rollback()); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(100) // about 20,000 pages
	if n := size(); n > 2*2000*frameBytes {
		t.Errorf("the WAL has %d bytes", n)
	}
	tx := pin()
	write(30)
	grown := size()
	if grown < 2*2000*frameBytes {
		t.Errorf("the WAL has %d bytes beside a long reader", grown)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	write(60)
	if n := size(); n > grown+2000*frameBytes {
		t.Errorf("after the reader has gone the WAL grew from %d to %d", grown, n)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(s.path + "-wal"); !os.IsNotExist(err) {
		t.Errorf("the WAL outlives the close: %v", err)
	}
}

// N-14, N-20: rows past the windows go, ids past theirs too, also after a restart that forgot which.
func TestSpaceIsFreed(t *testing.T) {
	path := dbPath(t)
	s := openAt(t, path, nil)
	defer func() { _ = s.Close() }()
	f := claimed(t, s)
	count := func(text string) int64 {
		t.Helper()
		n, err := s.w.number(t.Context(), text)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	at := 0
	write := func(groups int) {
		t.Helper()
		for range groups {
			if err := s.Commit(t.Context(), f, turns(1, at, 50, 10)); err != nil {
				t.Fatal(err)
			}
			at += 50
		}
	}
	write(140)
	// The window, a step of marks, a batch that gathers and one that goes.
	if n := count("select count(*) from turn"); n < 512 || n > 512+64+128+300 {
		t.Errorf("%d turn rows are left", n)
	}
	if n := count("select sum(length(ids)) / 16 from seen"); n < 4096-128 || n > 4096+128 {
		t.Errorf("%d ids are kept", n)
	}
	if n := len(s.past.upTo) + len(s.past.inWork); n > 2 {
		t.Errorf("%d neurons are remembered for one", n)
	}
	left := count("select min(pos) from turn")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openAt(t, path, nil)
	f = claimed(t, s)
	write(20)
	if n := count("select min(pos) from turn"); n <= left {
		t.Errorf("the oldest row is still at %d", n)
	}
	if n := count("select count(*) from turn"); n > 512+64+128+300 {
		t.Errorf("%d turn rows are left after a restart", n)
	}
}

// Of a neuron that hardly sends, the rows that sent nothing go.
func TestSpaceOfSilentTurns(t *testing.T) {
	// N-14
	s := openAt(t, dbPath(t), nil)
	defer func() { _ = s.Close() }()
	f := claimed(t, s)
	for at := 0; at < 4000; at += 50 {
		group := turns(1, at, 50, 10)
		for _, r := range group {
			if r.Turn.Seq == 30 {
				r.Turn.Outgoing = []byte(`[{"alias":"test.v1"}]`)
			}
			if r.Turn.Seq > 30 {
				r.Turn.OutFirst = 2
			}
			if r.Checkpoint != nil {
				r.Checkpoint.OutSeq = 1
			}
		}
		if err := s.Commit(t.Context(), f, group); err != nil {
			t.Fatal(err)
		}
	}
	n, err := s.w.number(t.Context(), "select count(*) from turn")
	if err != nil || n > 512+64+128+300 {
		t.Errorf("%d turn rows are left, %v", n, err)
	}
	p, err := s.Entries(t.Context(), neuron.ID{Owner: "me", Kind: "test", Key: "1"}, neuron.Out, 0, 10)
	if err != nil || len(p.Entries) != 1 || p.First != 1 {
		t.Errorf("the one sent entry: %+v, %v", p, err)
	}
}

// What a failed group found past the windows is forgotten: its rows may still be shown.
func TestFailedGroupDeletesNothing(t *testing.T) {
	// N-34
	s := openAt(t, dbPath(t), nil)
	defer func() { _ = s.Close() }()
	f := claimed(t, s)
	at := 0
	for ; at < 1500; at += 50 {
		if err := s.Commit(t.Context(), f, turns(1, at, 50, 10)); err != nil {
			t.Fatal(err)
		}
	}
	rows, batch, upTo := len(s.past.rows), len(s.past.batch), s.past.upTo[1]
	group := turns(1, at, 200, 10)
	group = append(group, group[0])
	var record *neuron.RecordError
	if err := s.Commit(t.Context(), f, group); !errors.As(err, &record) || record.Index != 200 {
		t.Fatalf("commit: %v", err)
	}
	if len(s.past.rows) != rows || len(s.past.batch) != batch || s.past.upTo[1] != upTo {
		t.Errorf("past: %d rows, %d in work, up to %v; before %d, %d, %v", len(s.past.rows), len(s.past.batch), s.past.upTo[1], rows, batch, upTo)
	}
	if rows == 0 && batch == 0 {
		t.Error("nothing had gathered before")
	}
}
