package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"soma/internal/config"
	"soma/internal/crash"
	"soma/internal/store/schema"
	"soma/internal/store/sqlite"
	"soma/internal/store/transfer"
)

// Restored tells what a restore has brought and what it has taken away.
type Restored struct {
	Result
	At       time.Time       `json:"at"`       // of the backup
	Replaced *transfer.Facts `json:"replaced"` // what the store held that was replaced; nil without one, or where it cannot be read
	Kept     string          `json:"kept"`     // file of the replaced store; empty without one
}

// kernelReason is what cells of the backup's time are told.
const kernelReason = "the store was restored from a backup"

// Restore makes the store of a place from a backup. A home that holds one already is refused unless replace is set; its old
// store is kept beside the new one. A database server must be empty. The place has its old store or the whole new one, whenever this
// ends. Errors: *config.LockedError, *NotEmptyError, *schema.Error for a file of another program or a later build, those of the
// system.
func Restore(ctx context.Context, file string, to Place, replace bool, o Options) (r Restored, err error) {
	began := o.Now()
	release, err := to.hold(true)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, release()) }()
	src, err := sqlite.OpenSnapshot(ctx, file)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	seal, err := src.Seal(ctx)
	switch {
	case err != nil:
		return r, err
	case seal == nil:
		return r, fmt.Errorf("%s is no backup but a store: soma store copy copies it", file)
	case seal.Kind != schema.Backup:
		return r, fmt.Errorf("%s is no whole backup: it was begun at %s and did not end", file, seal.At.Format(time.RFC3339))
	}
	r.At = seal.At
	if to.Database != "" {
		if err := src.Check(ctx); err != nil {
			return r, fmt.Errorf("cannot restore %s: %w", file, err)
		}
		r.Result, err = into(ctx, src, Place{File: file}, to, crash.RestoreMid, kernelReason, func(context.Context) error { return nil }, o)
	} else {
		err = r.intoFile(ctx, src, file, to, seal.Epoch, replace, o)
	}
	r.From, r.To, r.Took = file, to.String(), o.Now().Sub(began)
	return r, err
}

// intoFile puts a copy of the file in the place of the home's store.
func (r *Restored) intoFile(ctx context.Context, src *sqlite.Snapshot, file string, to Place, epoch uint64, replace bool, o Options) (err error) {
	path, err := to.path()
	if err != nil {
		return err
	}
	old, held, err := r.lookAtOld(ctx, path, to, replace)
	if err != nil {
		return err
	}
	if r.Facts, err = transfer.Look(ctx, src); err != nil {
		return fmt.Errorf("cannot restore %s: %w", file, err)
	}
	next := path + ".restoring"
	defer func() {
		if err != nil {
			err = errors.Join(err, removeAll(next))
		}
	}()
	if err := r.revive(ctx, file, next, max(held, epoch)); err != nil {
		return fmt.Errorf("cannot restore %s: %w", file, err)
	}
	crash.Point(crash.RestoreMid)
	if old {
		r.Kept = path + ".replaced-" + o.Now().UTC().Format("20060102-150405.000")
		if err := setAside(ctx, path, r.Kept); err != nil {
			return fmt.Errorf("cannot keep the old store: %w", err)
		}
	} else if err := removeBeside(path); err != nil {
		return err
	}
	if err := errors.Join(os.Rename(next, path), syncDir(filepath.Dir(path))); err != nil {
		return err
	}
	crash.Point(crash.RestorePlaced)
	if to.Home == "" {
		return nil
	}
	return forget(ctx, to.Home)
}

// lookAtOld reports whether there is a store at path that has to be kept, and its epoch where it can be read.
func (r *Restored) lookAtOld(ctx context.Context, path string, to Place, replace bool) (there bool, epoch uint64, err error) {
	if info, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return false, 0, nil
	} else if err != nil {
		return false, 0, err
	}
	was, err := sqlite.OpenSnapshot(ctx, path)
	if err != nil { // damaged, as the stores are for which backups are made
		if !replace {
			return false, 0, &NotEmptyError{to}
		}
		return true, 0, nil
	}
	defer func() { err = errors.Join(err, was.Close()) }()
	all, err := transfer.Sums(ctx, was)
	if err != nil && !replace {
		return false, 0, err
	}
	used := err != nil
	for _, t := range all {
		used = used || t.Rows > 0 && t.Name != "meta"
	}
	if used && !replace {
		return false, 0, &NotEmptyError{to}
	}
	if f, err := transfer.Look(ctx, was); err == nil && used {
		r.Replaced = &f
	}
	epoch, _ = was.Epoch(ctx) // a damaged one has none
	return true, epoch, nil
}

// revive makes a store of a copy of the backup.
func (r *Restored) revive(ctx context.Context, file, next string, epoch uint64) (err error) {
	if err := copyFile(ctx, file, next); err != nil {
		return err
	}
	c, err := sqlite.OpenCopy(ctx, next)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := c.Check(ctx); err != nil {
		return err
	}
	if r.Tables, err = transfer.Sums(ctx, c); err != nil {
		return err
	}
	for _, t := range r.Tables {
		r.Rows += t.Rows
	}
	return c.Finish(ctx, transfer.Finish{Reason: kernelReason, Epoch: epoch})
}

// copyFile copies the bytes of a file into a new one and syncs it.
func copyFile(ctx context.Context, from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := claim(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	for {
		n, err := io.CopyN(out, in, 16<<20)
		switch {
		case errors.Is(err, io.EOF), err == nil && n == 0:
			return out.Sync()
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
	}
}

// setAside gives the old store a second name, whole in one file if it can be read; the first name is free to be replaced.
func setAside(ctx context.Context, path, kept string) error {
	folded := sqlite.Fold(ctx, path)
	if err := os.Link(path, kept); err != nil {
		return err
	}
	// A log beside a file that it does not belong to would be read into it.
	if err := os.Rename(path+"-wal", kept+"-wal"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(err, folded)
	}
	return removeBeside(path)
}

// forget removes what a home keeps of a store that is no more: the notes on what ran at a crash, and run directories, whose
// python kernels end when they miss them. It waits for their end.
func forget(ctx context.Context, dir string) error {
	home, err := config.HomeAt(dir)
	if err != nil {
		return err
	}
	err = os.RemoveAll(filepath.Join(home.Cache(), "inflight"))
	kernels, rerr := os.ReadDir(home.Run())
	if rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
		return errors.Join(err, rerr)
	}
	for _, e := range kernels {
		err = errors.Join(err, forgetKernel(ctx, filepath.Join(home.Run(), e.Name())))
	}
	return err
}

// kernelWait is how long a python kernel may take to notice that it is not wanted, lookGap the time between two looks.
const (
	kernelWait = 10 * time.Second
	lookGap    = 20 * time.Millisecond
)

// forgetKernel removes the run directory of a python kernel and waits until nobody holds the lock that was in it.
func forgetKernel(ctx context.Context, dir string) error {
	lock, err := os.Open(filepath.Join(dir, "lock"))
	if rerr := os.RemoveAll(dir); err != nil || rerr != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return errors.Join(err, rerr)
	}
	defer lock.Close()
	ctx, cancel := context.WithTimeout(ctx, kernelWait)
	defer cancel()
	look := time.NewTicker(lookGap)
	defer look.Stop()
	for {
		if err := unix.Flock(int(lock.Fd()), unix.LOCK_SH|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return fmt.Errorf("a python kernel of the old store does not end: it ran from %s", dir)
		}
	}
}
