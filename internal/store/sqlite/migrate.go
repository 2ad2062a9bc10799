package sqlite

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"soma/internal/crash"
)

// SchemaError reports a database whose schema this build cannot use: one of a later build, or no database of Soma at all.
type SchemaError struct {
	Found string // the schema's number, or what the file is
	Known int    // the last schema that this build knows
}

func (e *SchemaError) Error() string {
	return fmt.Sprintf("the home has schema %s, this build knows up to %d: use the build that made it, or another home", e.Found, e.Known)
}

func foreign(known int) error { return &SchemaError{Found: "of another program", Known: known} }

type migration struct {
	number int
	name   string
	script string
}

// load reads the migrations in order. They are numbered 1, 2, … without a gap.
func load(files fs.FS) ([]migration, error) {
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var out []migration
	for i, name := range names {
		digits, _, _ := strings.Cut(name, "_")
		n, err := strconv.Atoi(digits)
		if err != nil || n != i+1 {
			return nil, fmt.Errorf("migration %s: want number %04d", name, i+1)
		}
		b, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		out = append(out, migration{n, name, string(b)})
	}
	return out, nil
}

// migrate applies what the database lacks, each migration in a transaction of its own.
func migrate(ctx context.Context, w *writer, all []migration) error {
	at, err := schema(ctx, w, len(all))
	if err != nil {
		return err
	}
	// Not before the schema is known to be ours: a refused file stays as it is.
	mode, err := w.text(ctx, "pragma journal_mode = wal")
	if err != nil {
		return err
	}
	if mode != "wal" {
		return fmt.Errorf("the file system allows no WAL, only journal mode %s", mode)
	}
	for _, m := range all[at:] {
		if err := apply(ctx, w, m); err != nil {
			return fmt.Errorf("cannot apply migration %s: %w", m.name, err)
		}
	}
	return nil
}

func schema(ctx context.Context, w *writer, known int) (int, error) {
	tables, err := w.number(ctx, "select count(*) from sqlite_schema")
	if err != nil {
		return 0, err
	}
	if tables == 0 {
		return 0, nil
	}
	meta, err := w.number(ctx, "select count(*) from sqlite_schema where type = 'table' and name = 'meta'")
	if err != nil {
		return 0, err
	}
	if meta == 0 {
		return 0, foreign(known)
	}
	text, err := w.text(ctx, "select value from meta where name = 'schema'")
	if err != nil {
		return 0, foreign(known)
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > known {
		return 0, &SchemaError{Found: text, Known: known}
	}
	return n, nil
}

func apply(ctx context.Context, w *writer, m migration) (err error) {
	if err := w.begin(ctx); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = w.rollback(ctx)
		}
	}()
	if err := w.script(ctx, m.script); err != nil {
		return err
	}
	crash.Point(crash.MigrateMid)
	var b [16]byte
	rand.Read(b[:])
	if _, err := w.exec(ctx, "insert into meta (name, value) values ('generation', ?) on conflict (name) do nothing",
		hex.EncodeToString(b[:])); err != nil {
		return err
	}
	if _, err := w.exec(ctx, "insert into meta (name, value) values ('schema', ?) on conflict (name) do update set value = excluded.value",
		strconv.Itoa(m.number)); err != nil {
		return err
	}
	return w.commit(ctx)
}
