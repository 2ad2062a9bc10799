package storetest

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"soma/ident"
	"soma/internal/neuron"
)

func contextOf(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithCancel(t.Context())
}

func outboxRow(to neuron.ID) neuron.OutboxRow {
	id := ident.New(at)
	return neuron.OutboxRow{
		Delivery: neuron.Delivery{ID: id, Alias: "suite.sent.v1", Payload: payload(20), Caller: neuron.ID{Owner: "me", Kind: "suite", Key: "from"},
			Target: to, Correlation: id, Causation: id, Seq: 7, Depth: 2, At: at, Lane: neuron.Signal, Key: "once"},
		Place: neuron.PlaceOf(to.String()), Due: at.Add(time.Second),
	}
}

func execution(of neuron.ID) neuron.Execution {
	return neuron.Execution{ID: ident.New(at), Attempt: 1, Neuron: of, Kind: "suite", Policy: neuron.Attach, Input: payload(30),
		Then: "suite.done.v1", Deadline: time.Minute, Depth: 3, Correlation: ident.New(at), StartedAt: at, Estimate: 12}
}

func deadLetter(to neuron.ID) neuron.DeadLetter {
	return neuron.DeadLetter{Delivery: outboxRow(to).Delivery, Code: neuron.AttemptsSpent, Error: "why", Attempts: 4, EndedAt: at}
}

// testOutbox: rows come back whole and in order, keep their attempts, and go when delivered.
func testOutbox(t *testing.T, e Engine) {
	// N-17, N-45
	s := open(t, e)
	f := claim(t, e, s)
	to := neuron.ID{Owner: "me", Kind: "suite", Key: "to"}
	a := newActor("a", 1)
	var rows []neuron.OutboxRow
	for i := range 5 {
		o := outboxRow(to)
		o.Alarm = i == 3
		rows = append(rows, o)
	}
	r := a.turn(step{})
	r.Outbox = []neuron.OutboxRow{rows[4], rows[0], rows[2]}
	q := a.turn(step{})
	q.Outbox = []neuron.OutboxRow{rows[3], rows[1]}
	commit(t, s, f, r, q)
	check := func(want []neuron.OutboxRow) {
		t.Helper()
		got, err := s.Outbox(t.Context(), neuron.AllPlaces(), ident.ID{}, 100)
		if err != nil {
			t.Fatal(err)
		}
		if err := same(got, want); err != nil {
			t.Fatal(err)
		}
	}
	check(rows)
	rows[2].Attempts, rows[2].Crashes, rows[2].Tried = 3, 1, 90*time.Second
	rows[2].FirstTry, rows[2].Due = at.Add(time.Minute), at.Add(time.Hour)
	commit(t, s, f, &neuron.Record{Neuron: to, Retried: rows[2:3]})
	check(rows)
	page, err := s.Outbox(t.Context(), neuron.AllPlaces(), rows[1].ID, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := same(page, rows[2:4]); err != nil {
		t.Fatal(err)
	}
	commit(t, s, f, &neuron.Record{Neuron: to, Delivered: []ident.ID{rows[0].ID, rows[3].ID, ident.New(at)}})
	check([]neuron.OutboxRow{rows[1], rows[2], rows[4]})
}

// testExecutions: a new attempt takes the row of the old one; the end takes it away.
func testExecutions(t *testing.T, e Engine) {
	// N-10
	s := open(t, e)
	f := claim(t, e, s)
	a := newActor("a", 1)
	xs := []neuron.Execution{execution(a.id), execution(a.id), execution(a.id)}
	r := a.turn(step{})
	r.Started = []neuron.Execution{xs[1], xs[2], xs[0]}
	commit(t, s, f, r)
	check := func(after ident.ID, limit int, want []neuron.Execution) {
		t.Helper()
		got, err := s.Executions(t.Context(), neuron.AllPlaces(), after, limit)
		if err != nil {
			t.Fatal(err)
		}
		if err := same(got, want); err != nil {
			t.Fatal(err)
		}
	}
	check(ident.ID{}, 10, xs)
	check(xs[0].ID, 1, xs[1:2])
	xs[1].Attempt, xs[1].Estimate = 2, 40
	r = a.turn(step{})
	r.Started = xs[1:2]
	commit(t, s, f, r)
	check(ident.ID{}, 10, xs)
	r = a.turn(step{})
	r.Ended = []ident.ID{xs[0].ID, xs[2].ID}
	commit(t, s, f, r)
	check(ident.ID{}, 10, xs[1:2])
}

func testDeadLetters(t *testing.T, e Engine) {
	// N-18
	s := open(t, e)
	f := claim(t, e, s)
	to := neuron.ID{Owner: "me", Kind: "suite", Key: "to"}
	ds := []neuron.DeadLetter{deadLetter(to), deadLetter(to), deadLetter(to)}
	commit(t, s, f, &neuron.Record{Neuron: to, Dead: []neuron.DeadLetter{ds[2], ds[0]}}, &neuron.Record{Neuron: to, Dead: ds[1:2]})
	got, err := s.DeadLetters(t.Context(), ident.ID{}, 10)
	if err != nil {
		t.Fatal(err)
	}
	if err := same(got, ds); err != nil {
		t.Fatal(err)
	}
	commit(t, s, f, &neuron.Record{Neuron: to, Undead: []ident.ID{ds[0].ID}})
	if got, err = s.DeadLetters(t.Context(), ds[1].ID, 10); err != nil {
		t.Fatal(err)
	}
	if err := same(got, ds[2:]); err != nil {
		t.Fatal(err)
	}
	wantLists(t, s, 0, 0, 2)
	// Of two that end one dead letter at once the second one is refused whole.
	r := newActor("a", 1).turn(step{})
	r.Undead = []ident.ID{ds[1].ID, ds[0].ID}
	wantRecordError(t, s.Commit(t.Context(), f, []*neuron.Record{r}), 0, neuron.ErrNoDeadLetter)
	newActor("a", 1).verify(t, s)
	wantLists(t, s, 0, 0, 2)
}

// testContents: a large value is stored with its turn and read back by its reference.
func testContents(t *testing.T, e Engine) {
	// N-46
	s := open(t, e)
	f := claim(t, e, s)
	a := newActor("a", 1)
	c := neuron.Content{ID: ident.New(at), Bytes: []byte(payload(200 << 10))}
	r := a.turn(step{})
	r.Contents = []neuron.Content{c, {ID: ident.New(at)}}
	commit(t, s, f, r)
	read := func(id ident.ID) (b []byte, size int64) {
		t.Helper()
		n := 0
		err := s.Query(t.Context(), "select bytes, size from content where id = ?", []any{id[:]}, func(scan func(...any) error) error {
			n++
			return scan(&b, &size)
		})
		if err != nil || n != 1 {
			t.Fatalf("content: %d rows, %v", n, err)
		}
		return b, size
	}
	if b, size := read(c.ID); !json.Valid(b) || string(b) != string(c.Bytes) || size != int64(len(c.Bytes)) {
		t.Errorf("content of %d bytes came back as %d, size %d", len(c.Bytes), len(b), size)
	}
	if b, size := read(r.Contents[1].ID); len(b) != 0 || size != 0 {
		t.Errorf("an empty content came back as %d bytes, size %d", len(b), size)
	}
	again := a.copy()
	q := again.turn(step{})
	q.Contents = []neuron.Content{c}
	wantRecordError(t, s.Commit(t.Context(), f, []*neuron.Record{q}), 0, nil)
	a.verify(t, s)
}
