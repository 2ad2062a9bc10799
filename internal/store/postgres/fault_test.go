package postgres

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"soma/internal/neuron"
	"soma/internal/store/postgres/postgrestest"
)

// N-33: the server dies in the middle of commits and comes back: a commit whose outcome is open has happened or not, all
// that were answered are there, and none is there twice.
func TestServerDies(t *testing.T) {
	s := fresh(t, Options{})
	f, _ := take(t, s, claimed(t, s, "a"), neuron.AllPlaces())
	server := postgrestest.Shared(t)
	seq, unknown := uint64(0), 0
	for round := range uint64(3) {
		killed, begin := make(chan error, 1), make(chan struct{})
		go func(begin chan struct{}) {
			<-begin
			killed <- errors.Join(server.Kill(), server.Restart(t.Context()))
		}(begin)
		for seq < round*200+200 {
			if seq >= round*200+100 && begin != nil {
				close(begin) // it dies while commits go on
				begin = nil
			}
			switch err := s.Commit(t.Context(), f, []*neuron.Record{one(seq + 1)}); {
			case err == nil:
				seq++
			case errors.Is(err, neuron.ErrOutcomeUnknown):
				unknown++
				if err := <-killed; err != nil {
					t.Fatal(err)
				}
				killed <- nil
				n, err := s.Neuron(t.Context(), one(1).Neuron)
				if err != nil || n.InSeq != seq && n.InSeq != seq+1 {
					t.Fatalf("after %d answered commits the neuron is at %d, %v", seq, n.InSeq, err)
				}
				seq = n.InSeq
			default:
				t.Fatalf("commit %d: %v", seq+1, err)
			}
		}
		if err := <-killed; err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d commits had an open outcome", unknown)
	if n := number(t, s, "select count(*) from turn"); uint64(n) != seq {
		t.Errorf("%d turns, want %d", n, seq)
	}
}

// A server that was started anew between two commits costs nothing: the lost connection is noticed before a commit is sent.
func TestServerRestartsWhileIdle(t *testing.T) {
	// N-33
	s := fresh(t, Options{})
	f, _ := take(t, s, claimed(t, s, "a"), neuron.AllPlaces())
	for seq := uint64(1); seq <= 3; seq++ {
		if err := s.Commit(t.Context(), f, []*neuron.Record{one(seq)}); err != nil {
			t.Fatal(err)
		}
		if n, err := s.Neuron(t.Context(), one(1).Neuron); err != nil || n.InSeq != seq {
			t.Fatalf("the neuron is at %d, %v", n.InSeq, err)
		}
		server := postgrestest.Shared(t)
		if err := errors.Join(server.Kill(), server.Restart(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Claim(t.Context(), "a"); err != nil {
		t.Errorf("a claim after a restart: %v", err)
	}
}

// through opens a second store on the database of s, behind a relay.
func through(t *testing.T, s *Store) (*postgrestest.Relay, *Store) {
	t.Helper()
	r := postgrestest.StartRelay(t, postgrestest.Shared(t))
	_, name, _ := strings.Cut(dsnOf(t, s), "dbname=")
	name, _, _ = strings.Cut(name, " ")
	return r, openAt(t, r.DSN(name), Options{})
}

// N-33: the connection is cut at a commit, before it reaches the server and before the answer comes back. The outcome is
// open both times; the next commit goes through on a new connection.
func TestConnectionCut(t *testing.T) {
	direct := fresh(t, Options{})
	r, s := through(t, direct)
	defer func() { _ = s.Close() }()
	f, _ := take(t, s, claimed(t, s, "a"), neuron.AllPlaces())
	commit := func(seq uint64) error { return s.Commit(t.Context(), f, []*neuron.Record{one(seq)}) }
	if err := commit(1); err != nil {
		t.Fatal(err)
	}
	mark := "test.v1" // in each turn that is sent
	r.Cut(func(text string, answer bool) bool { return !answer && strings.Contains(text, mark) })
	if err := commit(2); !errors.Is(err, neuron.ErrOutcomeUnknown) {
		t.Fatalf("cut on the way there: %v", err)
	}
	r.Cut(nil)
	if n := number(t, direct, "select count(*) from turn"); n != 1 {
		t.Fatalf("%d turns, want 1", n)
	}
	if err := commit(2); err != nil {
		t.Fatal(err)
	}
	sent := false
	r.Cut(func(text string, answer bool) bool {
		sent = sent || !answer && strings.Contains(text, mark)
		return sent && answer
	})
	if err := commit(3); !errors.Is(err, neuron.ErrOutcomeUnknown) {
		t.Fatalf("cut on the way back: %v", err)
	}
	r.Cut(nil)
	var one *neuron.RecordError
	if err := commit(3); !errors.As(err, &one) || !errors.Is(err, neuron.ErrDuplicate) {
		t.Fatalf("the commit that had happened, once more: %v", err)
	}
	if err := commit(4); err != nil {
		t.Fatal(err)
	}
	if n := number(t, direct, "select count(*) from turn"); n != 4 {
		t.Errorf("%d turns, want 4", n)
	}
}

// What another session locks is waited for, a deadlock is tried again, and nothing of a group that failed stays.
func TestRetried(t *testing.T) {
	// N-34
	s := fresh(t, Options{})
	f, _ := take(t, s, claimed(t, s, "a"), neuron.AllPlaces())
	if err := s.Commit(t.Context(), f, []*neuron.Record{one(1)}); err != nil {
		t.Fatal(err)
	}
	exec(t, s, `create function fails() returns trigger language plpgsql as $$ begin
		if nextval('tries') < 4 then raise exception using errcode = '40001', message = 'try again'; end if; return new; end $$;
		create sequence tries; create trigger fails before insert on turn execute function fails()`)
	if err := s.Commit(t.Context(), f, []*neuron.Record{one(2)}); err != nil {
		t.Errorf("a transient failure was not tried again: %v", err)
	}
	if n := number(t, s, "select count(*) from turn"); n != 2 {
		t.Errorf("%d turns, want 2", n)
	}
	exec(t, s, `alter sequence tries restart with 1; create or replace function fails() returns trigger language plpgsql as $$ begin
		raise exception using errcode = '40001', message = 'never'; end $$`)
	err := s.Commit(t.Context(), f, []*neuron.Record{one(3)})
	if err == nil || errors.Is(err, neuron.ErrOutcomeUnknown) || errors.Is(err, neuron.ErrStoreFailed) || !strings.Contains(err.Error(), fmt.Sprint(retries)) {
		t.Errorf("a failure that stays: %v", err)
	}
	exec(t, s, "drop trigger fails on turn")
	if err := s.Commit(t.Context(), f, []*neuron.Record{one(3)}); err != nil {
		t.Error(err)
	}
}

// N-33: a full disk ends the store for good.
func TestStoreFails(t *testing.T) {
	s := fresh(t, Options{})
	f, _ := take(t, s, claimed(t, s, "a"), neuron.AllPlaces())
	exec(t, s, `create function full_disk() returns trigger language plpgsql as $$ begin
		raise exception using errcode = '53100', message = 'no space left'; end $$;
		create trigger full_disk before insert on turn execute function full_disk()`)
	err := s.Commit(t.Context(), f, []*neuron.Record{one(1)})
	if !errors.Is(err, neuron.ErrStoreFailed) || errors.Is(err, neuron.ErrOutcomeUnknown) || strings.Contains(err.Error(), "\n") {
		t.Fatalf("commit on a full disk: %v", err)
	}
	exec(t, s, "drop trigger full_disk on turn")
	if again := s.Commit(t.Context(), f, []*neuron.Record{one(1)}); again == nil || again.Error() != err.Error() {
		t.Errorf("the failed store goes on: %v", again)
	}
}

// A server that stays away is waited for, and then the store gives up, also without ever having sent anything.
func TestServerStaysAway(t *testing.T) {
	direct := fresh(t, Options{})
	r, s := through(t, direct)
	defer func() { _ = s.Close() }()
	s.patience = 200 * time.Millisecond
	f, _ := take(t, s, claimed(t, s, "a"), neuron.AllPlaces())
	if err := s.Commit(t.Context(), f, []*neuron.Record{one(1)}); err != nil {
		t.Fatal(err)
	}
	r.Cut(func(string, bool) bool { return true })
	err := s.Commit(t.Context(), f, []*neuron.Record{one(2)})
	if !errors.Is(err, neuron.ErrOutcomeUnknown) {
		t.Fatalf("a commit into the void: %v", err)
	}
	if err := s.Commit(t.Context(), f, []*neuron.Record{one(2)}); !errors.Is(err, neuron.ErrStoreFailed) {
		t.Fatalf("a commit without a server: %v", err)
	}
}

// N-36: while the server is away a read says so, in one line, and finds it again afterwards.
func TestReadsWhileTheServerIsAway(t *testing.T) {
	s := fresh(t, Options{})
	server := postgrestest.Shared(t)
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	_, err := s.Neuron(t.Context(), one(1).Neuron)
	if !errors.Is(err, neuron.ErrStoreAway) || !strings.HasSuffix(err.Error(), ": connect: connection refused") || strings.Contains(err.Error(), "\n") {
		t.Errorf("a read without a server: %v", err)
	}
	if err := s.Query(t.Context(), "select 1", nil, nil); !errors.Is(err, neuron.ErrStoreAway) {
		t.Errorf("a query without a server: %v", err)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Neuron(t.Context(), one(1).Neuron); err != nil {
		t.Errorf("a read after the restart: %v", err)
	}
	_, err = Open(t.Context(), server.DSN("nowhere"), Options{})
	if err == nil || errors.Is(err, neuron.ErrStoreAway) || !strings.HasSuffix(err.Error(), `: database "nowhere" does not exist`) {
		t.Errorf("a database that is not there: %v", err)
	}
}
