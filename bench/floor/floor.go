// Package floor is the bare loop that the project's durable figures are divided by: the smallest program that appends one
// row per turn to SQLite, the rows of many clients in one transaction, an fsync for each transaction, no answer before it.
//
// It must not know any room of Soma, so that it becomes neither faster nor slower with them. It imports bench/measure.
package floor

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"modernc.org/sqlite"

	"soma/bench/measure"
)

const (
	group  = 256  // most rows in one transaction
	actors = 1000 // over which the rows are spread
	// walLimit is where the writer ends the WAL; the other connection's checkpoints never quite catch up.
	walLimit = 64 << 20
)

// body stands for a small message: each row holds two.
var body = make([]byte, 200)

// Loop is an open database with its one writer.
type Loop struct {
	queue
	path   string
	db     *sql.DB
	writer *sql.Conn
	insert *sql.Stmt
	cancel context.CancelFunc
	err    error // of a checkpoint
}

// Open makes the database in dir, a folder of its own. The caller must Close it.
func Open(ctx context.Context, dir string) (*Loop, error) {
	_, _ = sqlite.Fdatasync(true) // as every other build of SQLite on Linux does
	l := &Loop{path: filepath.Join(dir, "floor.db"), queue: newQueue()}
	var err error
	if l.db, err = sql.Open("sqlite", "file:"+l.path); err != nil {
		return nil, err
	}
	if l.writer, err = l.db.Conn(ctx); err != nil {
		return nil, err
	}
	for _, s := range []string{"pragma journal_mode = wal", "pragma synchronous = full", "pragma wal_autocheckpoint = 0",
		"create table turn (pos integer primary key, actor integer, seq integer, id integer, incoming blob, outgoing blob)",
		"create index turn_actor on turn (actor, seq)"} {
		if _, err := l.writer.ExecContext(ctx, s); err != nil {
			return nil, err
		}
	}
	var level int
	if err := l.writer.QueryRowContext(ctx, "pragma synchronous").Scan(&level); err != nil {
		return nil, err
	}
	if level != 2 {
		return nil, fmt.Errorf("synchronous is %d, not FULL", level)
	}
	if l.insert, err = l.writer.PrepareContext(ctx, "insert into turn (actor, seq, id, incoming, outgoing) values (?, ?, ?, ?, ?)"); err != nil {
		return nil, err
	}
	ctx, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
	l.done.Go(func() { l.write(context.WithoutCancel(ctx)) })
	l.done.Go(func() { l.checkpoint(ctx) })
	return l, nil
}

// Close ends the loop. The files stay.
func (l *Loop) Close() error {
	close(l.work)
	l.cancel()
	l.done.Wait()
	return errors.Join(l.err, l.insert.Close(), l.writer.Close(), l.db.Close())
}

// Run drives the loop with clients for d.
func (l *Loop) Run(d time.Duration, clients int) (measure.Result, error) { return l.drive(d, clients) }

func (l *Loop) write(ctx context.Context) {
	commits := 0
	for turns := l.take(); turns != nil; turns = l.take() {
		err := l.commit(ctx, turns)
		for _, t := range turns {
			t.done <- err
		}
		commits++
		if info, err := os.Stat(l.path + "-wal"); commits%32 == 0 && err == nil && info.Size() > walLimit {
			if _, err := l.writer.ExecContext(ctx, "pragma wal_checkpoint(truncate)"); err != nil {
				l.err = err
			}
		}
	}
}

func (l *Loop) commit(ctx context.Context, turns []*turn) error {
	if _, err := l.writer.ExecContext(ctx, "begin immediate"); err != nil {
		return err
	}
	for _, t := range turns {
		if _, err := l.insert.ExecContext(ctx, t.actor, t.seq, t.id, body, body); err != nil {
			return err
		}
	}
	_, err := l.writer.ExecContext(ctx, "commit")
	return err
}

// checkpoint copies the WAL on a second connection, so that no commit waits for it.
func (l *Loop) checkpoint(ctx context.Context) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			// An error here is one of the writer's, too; it fails there.
			_, _ = l.db.ExecContext(ctx, "pragma wal_checkpoint(passive)")
		}
	}
}
