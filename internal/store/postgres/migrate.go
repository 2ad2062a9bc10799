package postgres

import (
	"context"
	"crypto/rand"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"github.com/jackc/pgx/v5/pgconn"

	"soma/internal/crash"
	"soma/internal/store/schema"
)

//go:embed migrations/*.sql
var embedded embed.FS

// Migrations returns the migrations of this build, files NNNN_name.sql.
func Migrations() fs.FS {
	sub, err := fs.Sub(embedded, "migrations")
	if err != nil {
		panic(err) // the name is a constant
	}
	return sub
}

// SchemaError reports a database whose schema this build cannot use.
type SchemaError = schema.Error

// migrationLock is the advisory lock under which one node at a time brings the database up to date.
const migrationLock = 0x736f6d61

// migrate applies what the database lacks, each migration in a transaction of its own.
func (s *Store) migrate(ctx context.Context, base *pgconn.Config) (err error) {
	all, err := schema.Load(s.options.Migrations)
	if err != nil {
		return err
	}
	c, err := connect(ctx, configured(base, map[string]string{"client_min_messages": "warning"}))
	if err != nil {
		return err
	}
	w := newSession(c)
	defer w.hangUp()
	if err := fits(ctx, w); err != nil {
		return err
	}
	for {
		more, err := s.step(ctx, w, all)
		if err != nil {
			return err
		}
		if !more {
			break
		}
	}
	if seal, err := sealOf(ctx, w); err != nil {
		return err
	} else if seal != nil && !s.options.sealed {
		return &schema.SealedError{Seal: *seal}
	}
	v, err := w.value(ctx, "select value from meta where name = 'generation'")
	if err != nil {
		return err
	}
	s.generation, _ = v.(string)
	if s.generation == "" {
		return errors.New("the database has no generation")
	}
	return s.secret(ctx, w)
}

// secret reads what the nodes of this database know each other by. The first to open the database makes it.
func (s *Store) secret(ctx context.Context, w *session) error {
	var b [32]byte
	rand.Read(b[:])
	if _, err := w.exec(ctx, "insert into meta (name, value) values ('peers', $1) on conflict (name) do nothing", hex.EncodeToString(b[:])); err != nil {
		return err
	}
	v, err := w.value(ctx, "select value from meta where name = 'peers'")
	if err != nil {
		return err
	}
	s.peers, _ = v.(string)
	if len(s.peers) != 2*len(b) {
		return errors.New("the database holds no secret of its nodes: delete the row 'peers' of meta, and the next start makes another")
	}
	return nil
}

func fits(ctx context.Context, w *session) error {
	v, err := w.number(ctx, "select current_setting('server_version_num')::int")
	if err != nil {
		return err
	}
	if v < minVersion*10000 {
		return &VersionError{Found: w.c.ParameterStatus("server_version"), Need: strconv.Itoa(minVersion)}
	}
	encoding, err := w.value(ctx, "select current_setting('server_encoding')")
	if err != nil {
		return err
	}
	if encoding != "UTF8" {
		return fmt.Errorf("the database has encoding %v: make one with encoding UTF8", encoding)
	}
	return nil
}

// step applies the next migration, if there is one.
func (s *Store) step(ctx context.Context, w *session, all []schema.Migration) (more bool, err error) {
	if _, err := w.c.Exec(ctx, "begin; select pg_advisory_xact_lock("+strconv.Itoa(migrationLock)+")").ReadAll(); err != nil {
		return false, err
	}
	end := "rollback"
	defer func() {
		if _, eerr := w.c.Exec(ctx, end).ReadAll(); err == nil {
			err = eerr
		}
	}()
	at, err := applied(ctx, w, len(all))
	if err != nil || at == len(all) {
		return false, err
	}
	m := all[at]
	if err := apply(ctx, w, m); err != nil {
		return false, fmt.Errorf("cannot apply migration %s: %w", m.Name, err)
	}
	end = "commit"
	return true, nil
}

// applied returns the number of the last migration that the database has.
func applied(ctx context.Context, w *session, known int) (int, error) {
	n, err := w.number(ctx, `select count(*) from pg_catalog.pg_class where relnamespace = current_schema()::regnamespace and relkind in ('r', 'p', 'v', 'm')`)
	if err != nil || n == 0 {
		return 0, err
	}
	meta, err := w.number(ctx, "select count(*) from pg_catalog.pg_class where oid = to_regclass('meta')")
	if err != nil {
		return 0, err
	}
	if meta == 0 {
		return 0, schema.Foreign(known)
	}
	v, err := w.value(ctx, "select value from meta where name = 'schema'")
	if err != nil {
		return 0, schema.Foreign(known)
	}
	text, _ := v.(string)
	at, err := strconv.Atoi(text)
	if err != nil || at < 1 || at > known {
		return 0, &SchemaError{Found: text, Known: known}
	}
	return at, nil
}

func apply(ctx context.Context, w *session, m schema.Migration) error {
	if _, err := w.c.Exec(ctx, m.Script).ReadAll(); err != nil {
		return err
	}
	crash.Point(crash.MigrateMid)
	var b [16]byte
	rand.Read(b[:])
	if _, err := w.exec(ctx, "insert into meta (name, value) values ('generation', $1) on conflict (name) do nothing",
		hex.EncodeToString(b[:])); err != nil {
		return err
	}
	_, err := w.exec(ctx, "insert into meta (name, value) values ('schema', $1) on conflict (name) do update set value = excluded.value",
		strconv.Itoa(m.Number))
	return err
}
