package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"
	"sync"
	"sync/atomic"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"soma/internal/crash"
)

const (
	// passivePages is how many pages commits write to the WAL before a passive checkpoint copies them to the database.
	passivePages = 4096
	// walBytes is the size at which the writer itself lets the WAL begin anew: while commits go on a passive checkpoint never
	// catches up wholly, and the file would grow for ever. The file keeps this size: a commit into blocks that exist is a
	// quarter faster than one that makes the file longer.
	walBytes = 64 << 20
	// frameBytes is what one page takes in the WAL.
	frameBytes = 4096 + 24
	// patience is how long the writer waits for such a reader, in milliseconds.
	patience = 20
)

// checkpointer copies the WAL into the database on a connection of its own, so that no commit waits for it. Commits wake
// it: an idle store has no timer.
type checkpointer struct {
	aside *writer
	wake  chan struct{}
	ended chan struct{}
	busy  sync.Mutex // held while a checkpoint runs

	frames atomic.Int64 // in the WAL, as the last passive checkpoint saw it
	failed atomic.Pointer[error]

	pages int   // written since the last wake; the writer's
	most  int64 // frames at which the writer begins the WAL anew; the writer's
	limit int64 // the same, later where a reader was in the way; the writer's
}

func startCheckpointer(ctx context.Context, aside driver.Conn) *checkpointer {
	c := &checkpointer{
		aside: newWriter(aside), wake: make(chan struct{}, 1), ended: make(chan struct{}),
		pages: passivePages, // the first commit wakes it: an earlier run may have left a long WAL
		most:  walBytes / frameBytes, limit: walBytes / frameBytes,
	}
	go func() {
		defer close(c.ended)
		for range c.wake {
			if err := c.passive(ctx); err != nil {
				c.failed.Store(&err)
			}
		}
	}()
	return c
}

// stop waits for a running checkpoint. No commit may run.
func (c *checkpointer) stop() error {
	close(c.wake)
	<-c.ended
	return c.aside.close()
}

func (c *checkpointer) passive(ctx context.Context) error {
	c.busy.Lock()
	defer c.busy.Unlock()
	_, frames, err := walCheckpoint(ctx, c.aside, "pragma wal_checkpoint(passive)")
	if err == nil {
		c.frames.Store(frames)
		crash.Point(crash.WALCopied)
	}
	return err
}

// committed is called by the writer after each commit, outside a transaction.
func (c *checkpointer) committed(ctx context.Context, w *writer) error {
	if err := c.failed.Load(); err != nil {
		return *err
	}
	n, _, err := w.c.(sqlite.DBStatus).Status(sqlite.DBStatusCacheWrite, true)
	if err != nil {
		return err
	}
	if c.pages += n; c.pages >= passivePages {
		c.pages = 0
		select {
		case c.wake <- struct{}{}:
		default: // it has not come to the last one yet
		}
	}
	if c.frames.Load() < c.limit || !c.busy.TryLock() {
		return nil
	}
	defer c.busy.Unlock()
	return c.restart(ctx, w)
}

func (c *checkpointer) restart(ctx context.Context, w *writer) error {
	if err := w.pragma(ctx, fmt.Sprintf("busy_timeout = %d", patience)); err != nil {
		return err
	}
	blocked, _, err := walCheckpoint(ctx, w, "pragma wal_checkpoint(restart)")
	if err != nil {
		return err
	}
	if blocked {
		c.limit = c.frames.Load() + c.most/4
	} else {
		c.frames.Store(0)
		c.limit = c.most
	}
	return w.pragma(ctx, fmt.Sprintf("busy_timeout = %d", busyTimeout))
}

// walCheckpoint reports whether something was in the way, and how many frames the WAL held.
func walCheckpoint(ctx context.Context, w *writer, text string) (blocked bool, frames int64, err error) {
	err = w.each(ctx, text, nil, func(v []driver.Value) error {
		blocked, frames = v[0].(int64) != 0, v[1].(int64)
		return nil
	})
	switch code(err) & 0xff {
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED:
		return true, frames, nil
	}
	return blocked, frames, err
}
