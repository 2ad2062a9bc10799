package postgres

import (
	"errors"
	"testing"
	"time"

	"soma/internal/store/postgres/postgrestest"
	"soma/internal/store/schema"
)

// I-17: a daemon that opened the database before a copy into it began does not begin a life on what is half copied.
func TestCopyBeginsBeforeTheLife(t *testing.T) {
	dsn := postgrestest.Database(t)
	s := openAt(t, dsn, Options{Migrations: Migrations()})
	defer s.Close()
	c, err := OpenCopy(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Prepare(t.Context(), schema.Seal{Kind: schema.Copying, From: "x", At: time.Unix(1, 0)}); err != nil {
		t.Fatal(err)
	}
	var sealed *schema.SealedError
	if _, err := s.Claim(t.Context(), "n"); !errors.As(err, &sealed) {
		t.Errorf("a life on a sealed database: %v", err)
	}
	if n := number(t, s, "select count(*) from node"); n != 0 {
		t.Errorf("%d nodes", n)
	}
}

// I-17: of two copies into one database at the same time one is refused before it touches anything; after the end of the other
// it may begin.
func TestTwoCopiesIntoOneDatabase(t *testing.T) {
	dsn := postgrestest.Database(t)
	seal := schema.Seal{Kind: schema.Copying, From: "x", At: time.Unix(1, 0)}
	a, err := OpenCopy(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Prepare(t.Context(), seal); err != nil {
		t.Fatal(err)
	}
	if _, err := a.s.exec(t.Context(), "insert into meta (name, value) values ('of', 'a')"); err != nil {
		t.Fatal(err)
	}
	b, err := OpenCopy(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	var alive *AliveError
	if err := b.Prepare(t.Context(), seal); !errors.As(err, &alive) {
		t.Errorf("a second copy: %v", err)
	}
	if n, err := b.s.number(t.Context(), "select count(*) from meta where name = 'of'"); n != 1 || err != nil {
		t.Errorf("the second copy has touched what the first wrote: %d, %v", n, err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	// The server notices the end of a connection when it likes to.
	if _, err := b.s.exec(t.Context(), "select pg_advisory_lock($1)", int64(copyLock)); err != nil {
		t.Fatal(err)
	}
	if err := b.Prepare(t.Context(), seal); err != nil {
		t.Errorf("after the end of the first: %v", err)
	}
}
