package sqlrecord_test

import (
	"context"
	"database/sql"
	"errors"
	"go/parser"
	"go/token"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"soma/hook"
	"soma/ident"
	"soma/session"
	"soma/session/sqlrecord"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "signals.db")+"?_pragma=busy_timeout(5000)")
	ok(t, err)
	t.Cleanup(func() { ok(t, db.Close()) })
	return db
}

func newSession(t *testing.T) *session.Session {
	t.Helper()
	s, err := session.New(session.Options{Log: slog.New(slog.DiscardHandler)})
	ok(t, err)
	return s
}

// S-27, S-37: what happens in two sessions, in one table, each with a sequence of its own.
func TestRecorder(t *testing.T) {
	ctx := t.Context()
	table := sqlrecord.NewTable(open(t))
	ok(t, table.Create(ctx))
	ok(t, table.Create(ctx))
	one, two := newSession(t), newSession(t)
	first, err := sqlrecord.Bind(one.Observer(), one.ID(), table, nil)
	ok(t, err)
	_, err = sqlrecord.Bind(two.Observer(), two.ID(), table, nil)
	ok(t, err)

	m, err := one.Default().AddContext(session.WithOp(ctx, "node 1"), session.Message{Role: session.Instruction, Text: "a secret", Sender: "ann"})
	ok(t, err)
	before := time.Now()
	for _, event := range []any{"x", session.RunStart{Name: "n"}} {
		_, err = one.Observer().Emit(ctx, event)
		ok(t, err)
		_, err = two.Observer().Emit(ctx, event)
		ok(t, err)
	}
	ok(t, one.Hooks().Emit(ctx, session.HookArgs{Point: hook.SessionEnd}))
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = one.Observer().Emit(ended, 5) // has happened all the same
	ok(t, err)
	one.Observer().SetGate(func(context.Context, any) (bool, error) { return false, nil })
	_, err = one.Observer().Emit(ctx, "refused")
	ok(t, err)
	one.Observer().ClearGate()

	rows, err := table.Rows(ctx, one.ID(), 0, 100)
	ok(t, err)
	var kinds []string
	for i, r := range rows {
		kinds = append(kinds, r.Kind)
		if r.Seq != int64(i+1) || r.Session != one.ID() {
			t.Errorf("row %d is %+v", i, r)
		}
	}
	if want := []string{"MessageAdded", "string", "RunStart", "HookSignal", "int"}; !slices.Equal(kinds, want) {
		t.Errorf("kinds are %q", kinds)
	}
	if r := rows[0]; r.Op != "node 1" || strings.Contains(string(r.Payload), "secret") || !strings.Contains(string(r.Payload), m.ID.String()) {
		t.Errorf("the message is %s of %q", r.Payload, r.Op)
	}
	if r := rows[1]; string(r.Payload) != `"x"` || r.Time.Before(before.Add(-time.Second)) || r.Time.After(time.Now()) {
		t.Errorf("the value is %+v", r)
	}
	if rows, err = table.Rows(ctx, one.ID(), 3, 1); err != nil || len(rows) != 1 || rows[0].Seq != 4 {
		t.Errorf("a page is %+v, %v", rows, err)
	}
	if rows, err = table.Rows(ctx, two.ID(), 0, 100); err != nil || len(rows) != 2 || rows[1].Seq != 2 {
		t.Errorf("the other session has %+v, %v", rows, err)
	}
	if first.Written() != 5 || first.Failed() != 0 {
		t.Errorf("%d written, %d failed", first.Written(), first.Failed())
	}

	// Unbound: nothing more comes, and another one goes on with the sequence.
	first.Unbind()
	first.Unbind()
	_, err = one.Observer().Emit(ctx, "lost")
	ok(t, err)
	again, err := sqlrecord.Bind(one.Observer(), one.ID(), table, nil)
	ok(t, err)
	_, err = one.Observer().Emit(ctx, "kept")
	ok(t, err)
	if rows, err = table.Rows(ctx, one.ID(), 5, 100); err != nil || len(rows) != 1 || rows[0].Seq != 6 || string(rows[0].Payload) != `"kept"` || again.Written() != 1 {
		t.Errorf("afterwards there is %+v, %v", rows, err)
	}
	for _, err := range []error{bindErr(nil, one.ID(), table), bindErr(one.Observer(), ident.ID{}, table), bindErr(one.Observer(), one.ID(), nil)} {
		if !errors.Is(err, session.ErrInvalid) {
			t.Errorf("bound: %v", err)
		}
	}
}

func bindErr(o *session.Observer, id ident.ID, store sqlrecord.Store) error {
	_, err := sqlrecord.Bind(o, id, store, nil)
	return err
}

// flaky is a store that fails and panics now and then, before the real one is asked.
type flaky struct {
	sqlrecord.Store
	mu sync.Mutex
	n  int
}

func (f *flaky) Append(ctx context.Context, r sqlrecord.Row) error {
	f.mu.Lock()
	f.n++
	n := f.n
	f.mu.Unlock()
	switch {
	case n%5 == 0:
		return errors.New("the disk is full")
	case n%7 == 0:
		panic("broken")
	}
	return f.Store.Append(ctx, r)
}

// S-27: a failing store disturbs no emission and is counted; the sequence has no gap, with several writers and recorders at once.
func TestFailingStore(t *testing.T) {
	ctx := t.Context()
	db := open(t)
	table := sqlrecord.NewTable(db)
	ok(t, table.Create(ctx))
	s := newSession(t)
	a, err := sqlrecord.Bind(s.Observer(), s.ID(), &flaky{Store: table}, slog.New(slog.DiscardHandler))
	ok(t, err)
	b, err := sqlrecord.Bind(s.Observer(), s.ID(), sqlrecord.NewTable(db), slog.New(slog.DiscardHandler))
	ok(t, err)
	const writers, each = 4, 20
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for i := range each {
				if results, err := s.Observer().Emit(ctx, i); err != nil || len(results) != 2 {
					t.Errorf("an emission fails: %v, %v", results, err)
				}
			}
		})
	}
	wg.Wait()
	const all = writers * each
	lost := uint64(all/5 + all/7 - all/35)
	if a.Failed() != lost || a.Written() != all-lost || b.Written()+b.Failed() != all {
		t.Errorf("%d and %d written, %d and %d failed", a.Written(), b.Written(), a.Failed(), b.Failed())
	}
	rows, err := table.Rows(ctx, s.ID(), 0, 10_000)
	ok(t, err)
	if uint64(len(rows)) != a.Written()+b.Written() {
		t.Errorf("%d rows", len(rows))
	}
	for i, r := range rows {
		if r.Seq != int64(i+1) {
			t.Fatalf("row %d has the number %d", i, r.Seq)
		}
	}

	if _, err := s.Observer().Emit(ctx, (*session.RunStart)(nil)); err != nil {
		t.Errorf("a signal that is nil: %v", err)
	}

	// The database itself is gone.
	ok(t, db.Close())
	if _, err := s.Observer().Emit(ctx, 1); err != nil {
		t.Error(err)
	}
	if b.Failed() == 0 {
		t.Error("a closed database is not counted")
	}
	if err := table.Create(ctx); err == nil {
		t.Error("a closed database can be written")
	}
	if _, err := table.Rows(ctx, s.ID(), 0, 1); err == nil {
		t.Error("a closed database can be read")
	}
}

// S-37: no driver comes with the package, and it can open nothing: it knows neither files nor the environment.
func TestNothingIsOpened(t *testing.T) {
	files, err := filepath.Glob("*.go")
	ok(t, err)
	allowed := []string{
		"context", "database/sql", "encoding", "encoding/json", "fmt", "log/slog", "reflect", "strings", "sync", "sync/atomic", "time", "unicode/utf8",
		"soma/ident", "soma/session",
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		ok(t, err)
		for _, spec := range parsed.Imports {
			if path, _ := strconv.Unquote(spec.Path.Value); !slices.Contains(allowed, path) {
				t.Errorf("%s imports %s", file, path)
			}
		}
	}
}
