package postgres

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
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

// relay passes bytes between the store and the server, and cuts the connection where it is told to.
type relay struct {
	net.Listener
	to string

	mu   sync.Mutex
	cut  func(text string, answer bool) bool // whether to cut before these bytes go on
	done sync.WaitGroup
}

func startRelay(t *testing.T) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{Listener: l, to: postgrestest.Shared(t).Address()}
	r.done.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", r.to)
			if err != nil {
				_ = c.Close()
				continue
			}
			r.done.Go(func() { r.pass(c, up, false); _ = up.Close() })
			r.done.Go(func() { r.pass(up, c, true); _ = c.Close() })
		}
	})
	t.Cleanup(func() { _ = l.Close(); r.done.Wait() })
	return r
}

func (r *relay) pass(from, to net.Conn, answer bool) {
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if n > 0 {
			r.mu.Lock()
			cut := r.cut != nil && r.cut(string(b[:n]), answer)
			r.mu.Unlock()
			if cut {
				_ = from.Close()
				_ = to.Close()
				return
			}
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				_ = from.Close()
			}
			return
		}
	}
}

func (r *relay) set(cut func(text string, answer bool) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = cut
}

// dsn leads to the database of s through the relay.
func (r *relay) dsn(t *testing.T, s *Store) string {
	dsn := dsnOf(t, s)
	host, port, _ := strings.Cut(r.Addr().String(), ":")
	return fmt.Sprintf("host=%s port=%s user=postgres sslmode=disable %s", host, port, dsn[strings.Index(dsn, "dbname="):])
}

// N-33: the connection is cut at a commit, before it reaches the server and before the answer comes back. The outcome is
// open both times; the next commit goes through on a new connection.
func TestConnectionCut(t *testing.T) {
	direct := fresh(t, Options{})
	r := startRelay(t)
	s := openAt(t, r.dsn(t, direct), Options{})
	defer func() { _ = s.Close() }()
	f, _ := take(t, s, claimed(t, s, "a"), neuron.AllPlaces())
	commit := func(seq uint64) error { return s.Commit(t.Context(), f, []*neuron.Record{one(seq)}) }
	if err := commit(1); err != nil {
		t.Fatal(err)
	}
	mark := "test.v1" // in each turn that is sent
	r.set(func(text string, answer bool) bool { return !answer && strings.Contains(text, mark) })
	if err := commit(2); !errors.Is(err, neuron.ErrOutcomeUnknown) {
		t.Fatalf("cut on the way there: %v", err)
	}
	r.set(nil)
	if n := number(t, direct, "select count(*) from turn"); n != 1 {
		t.Fatalf("%d turns, want 1", n)
	}
	if err := commit(2); err != nil {
		t.Fatal(err)
	}
	sent := false
	r.set(func(text string, answer bool) bool {
		sent = sent || !answer && strings.Contains(text, mark)
		return sent && answer
	})
	if err := commit(3); !errors.Is(err, neuron.ErrOutcomeUnknown) {
		t.Fatalf("cut on the way back: %v", err)
	}
	r.set(nil)
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
	r := startRelay(t)
	s := openAt(t, r.dsn(t, direct), Options{})
	defer func() { _ = s.Close() }()
	s.patience = 200 * time.Millisecond
	f, _ := take(t, s, claimed(t, s, "a"), neuron.AllPlaces())
	if err := s.Commit(t.Context(), f, []*neuron.Record{one(1)}); err != nil {
		t.Fatal(err)
	}
	r.set(func(string, bool) bool { return true })
	err := s.Commit(t.Context(), f, []*neuron.Record{one(2)})
	if !errors.Is(err, neuron.ErrOutcomeUnknown) {
		t.Fatalf("a commit into the void: %v", err)
	}
	if err := s.Commit(t.Context(), f, []*neuron.Record{one(2)}); !errors.Is(err, neuron.ErrStoreFailed) {
		t.Fatalf("a commit without a server: %v", err)
	}
}
