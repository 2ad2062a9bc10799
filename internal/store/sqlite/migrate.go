package sqlite

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strconv"

	"soma/internal/crash"
	"soma/internal/store/schema"
)

// SchemaError reports a database whose schema this build cannot use.
type SchemaError = schema.Error

// migrate applies what the database lacks, each migration in a transaction of its own.
func migrate(ctx context.Context, w *writer, all []schema.Migration) error {
	at, err := applied(ctx, w, len(all))
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
			return fmt.Errorf("cannot apply migration %s: %w", m.Name, err)
		}
	}
	return nil
}

func applied(ctx context.Context, w *writer, known int) (int, error) {
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
		return 0, schema.Foreign(known)
	}
	text, err := w.text(ctx, "select value from meta where name = 'schema'")
	if err != nil {
		return 0, schema.Foreign(known)
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > known {
		return 0, &SchemaError{Found: text, Known: known}
	}
	return n, nil
}

func apply(ctx context.Context, w *writer, m schema.Migration) (err error) {
	if err := w.begin(ctx); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = w.rollback(ctx)
		}
	}()
	if err := w.script(ctx, m.Script); err != nil {
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
		strconv.Itoa(m.Number)); err != nil {
		return err
	}
	return w.commit(ctx)
}
