package postgres

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/store/postgres/postgrestest"
)

// N-35: several nodes that open an empty database at once find one schema and one generation.
func TestOpenedAtOnce(t *testing.T) {
	dsn := postgrestest.Database(t)
	stores := make([]*Store, 4)
	var all sync.WaitGroup
	for i := range stores {
		all.Go(func() {
			var err error
			if stores[i], err = Open(t.Context(), dsn, Options{}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, s := range stores {
		if s == nil {
			continue
		}
		if g := s.Generation(); len(g) != 32 || g != stores[0].Generation() {
			t.Errorf("generation %q beside %q", g, stores[0].Generation())
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("closed twice: %v", err)
		}
		if err := s.Commit(t.Context(), neuron.Fence{Places: neuron.AllUnder(1)}, []*neuron.Record{one(1)}); err == nil {
			t.Error("a closed store commits")
		}
	}
}

// ours are the migrations of this build.
func ours(t *testing.T) []string {
	t.Helper()
	names, err := fs.Glob(Migrations(), "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestOtherSchemas(t *testing.T) {
	// N-35
	server := postgrestest.Shared(t)
	for _, c := range []struct{ name, sql, found string }{
		{"another program's", "create table things (id int)", "of another program"},
		{"a later build's", "create table meta (name text primary key, value text); insert into meta values ('schema', '99')", "99"},
		{"another meta", "create table meta (a int)", "of another program"},
	} {
		dsn := postgrestest.Database(t)
		name, _, _ := strings.Cut(dsn[strings.Index(dsn, "dbname=")+7:], " ")
		if err := server.Exec(t.Context(), name, c.sql); err != nil {
			t.Fatal(err)
		}
		_, err := Open(t.Context(), dsn, Options{})
		var schema *SchemaError
		if !errors.As(err, &schema) || schema.Found != c.found || schema.Known != len(ours(t)) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// A migration that fails leaves the database as it was; the next try goes on from there.
func TestFailedMigration(t *testing.T) {
	// N-35
	dsn := postgrestest.Database(t)
	all := withSuite(t).(fstest.MapFS)
	bad := fmt.Sprintf("%04d_bad.sql", len(all)+1)
	all[bad] = &fstest.MapFile{Data: []byte("create table half (id bigint); insert into nowhere values (1)")}
	if _, err := Open(t.Context(), dsn, Options{Migrations: all}); err == nil || !strings.Contains(err.Error(), bad) {
		t.Fatalf("open: %v", err)
	}
	s := openAt(t, dsn, Options{})
	defer func() { _ = s.Close() }()
	if n := number(t, s, "select count(*) from pg_class where relname = 'half'"); n != 0 {
		t.Error("half a migration stayed")
	}
	if n := number(t, s, "select value::bigint from meta where name = 'schema'"); n != int64(len(all)-1) {
		t.Errorf("schema %d, want %d", n, len(all)-1)
	}
}

// What a connection string holds beside the server's name is not told on.
func TestNoPasswordInErrors(t *testing.T) {
	for _, dsn := range []string{"postgres://me:s3cret@127.0.0.1:1/x?sslmode=disable&connect_timeout=1", "postgres://me:s3cret@[::bad/x", "host=127.0.0.1 port=no password=s3cret"} {
		_, err := Open(t.Context(), dsn, Options{})
		if err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("open: %v", err)
		}
	}
}

// mixed writes a value of one kind into a column of another, as the shared texts do.
type mixed struct {
	id   ident.ID
	args []any
}

func (mixed) SQL() string {
	return "insert into mixed (id, flag, words, chosen, ratio, kept) values (?, ?, ?, ?, ?, ?)"
}
func (m mixed) Args() []any { return append([]any{m.id[:]}, m.args...) }

// N-35: truth values, numbers, texts and bytes come back as they do from SQLite, zero bytes and broken UTF-8 in chosen text too.
func TestValues(t *testing.T) {
	s := fresh(t, Options{})
	f, _ := take(t, s, claimed(t, s, "a"), neuron.AllPlaces())
	exec(t, s, "create table mixed (id bytea, flag bigint, words text, chosen bytea, ratio float8, kept bytea)")
	chosen := "zero \x00, broken \xff, question? 'quoted'"
	r := one(1)
	r.Ops = []neuron.Op{
		mixed{ident.Named("m", "1"), []any{true, []byte("bytes for text"), chosen, 1.5, []byte{}}},
		mixed{ident.Named("m", "2"), []any{int64(1 << 60), "text", []byte(chosen), int64(2), nil}},
	}
	if err := s.Commit(t.Context(), f, []*neuron.Record{r}); err != nil {
		t.Fatal(err)
	}
	n, first := 0, r.Ops[0].(mixed).id
	err := s.Query(t.Context(), `select id, flag, flag > 1, words, chosen, ratio, kept, '?', sum(flag) over () from mixed where chosen = ? order by id <> ?`,
		[]any{chosen, first[:]}, func(scan func(...any) error) error {
			var id, kept []byte
			var flag, sum int64
			var big bool
			var words, got, mark string
			var ratio float64
			if err := scan(&id, &flag, &big, &words, &got, &ratio, &kept, &mark, &sum); err != nil {
				return err
			}
			m := r.Ops[n].(mixed)
			if n++; !bytes.Equal(id, m.id[:]) || got != chosen || big != (n == 2) || (kept == nil) != (n == 2) || mark != "?" || sum != 1<<60+1 {
				t.Errorf("row %d: %v %v %q %q %q %d", n, big, kept, words, got, mark, sum)
			}
			if want := []string{"1 bytes for text 1.5", fmt.Sprintf("%d text 2", 1<<60)}[n-1]; fmt.Sprint(flag, " ", words, " ", ratio) != want {
				t.Errorf("row %d: %d %s %v, want %s", n, flag, words, ratio, want)
			}
			return nil
		})
	if err != nil || n != 2 {
		t.Errorf("%d rows, %v", n, err)
	}
	bad := one(2)
	bad.Ops = []neuron.Op{mixed{ident.Named("m", "3"), []any{"no number", "", "", 0.0, nil}}}
	var record *neuron.RecordError
	if err := s.Commit(t.Context(), f, []*neuron.Record{bad}); !errors.As(err, &record) {
		t.Errorf("a text for a number: %v", err)
	}
}

func TestPlaceholders(t *testing.T) {
	for text, want := range map[string]string{
		"select ? + ?":                           "select $1 + $2",
		"select ?2, ?1":                          "select $2, $1",
		"select '?', \"a?\", ? -- what?\n, ?":    "select '?', \"a?\", $1 -- what?\n, $2",
		"select /* ? */ 'it''s ?', ?":            "select /* ? */ 'it''s ?', $1",
		"select 'open ?":                         "select 'open ?",
		"":                                       "",
		"update x set a = ?":                     "update x set a = $1",
		"select a - ?, b / ? from t where c=?10": "select a - $1, b / $2 from t where c=$10",
	} {
		if got := numbered(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

// N-14, N-20: rows past the windows go with checkpoints, ids past theirs too.
func TestSpaceIsFreed(t *testing.T) {
	s := fresh(t, Options{})
	f, _ := take(t, s, claimed(t, s, "a"), neuron.AllPlaces())
	seq := uint64(0)
	for range 70 {
		var group []*neuron.Record
		for range 100 {
			seq++
			r := one(seq)
			if seq == 30 {
				r.Turn.Outgoing = []byte(`[{"alias":"test.v1"}]`)
			} else if seq > 30 {
				r.Turn.OutFirst = 2
			}
			if seq%64 == 0 {
				r.Checkpoint = &neuron.Checkpoint{InSeq: seq, OutSeq: 1, Tallies: neuron.Tallies{In: map[string]uint64{"test.v1": seq}}}
			}
			group = append(group, r)
		}
		if err := s.Commit(t.Context(), f, group); err != nil {
			t.Fatal(err)
		}
	}
	// The window, a step of marks, and the one row that sent something.
	if n := number(t, s, "select count(*) from turn"); n < 512 || n > 512+64+128+1 {
		t.Errorf("%d turn rows are left", n)
	}
	if n := number(t, s, "select count(*) from turn where outgoing is not null"); n != 1 {
		t.Errorf("%d rows that sent something", n)
	}
	if n := number(t, s, "select sum(length(ids)) / 16 from seen"); n < 4096-128 || n > 4096+128 {
		t.Errorf("%d ids are kept", n)
	}
}
