package archive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"soma/internal/crash"
	"soma/internal/store/schema"
	"soma/internal/store/transfer"
)

// ExistsError reports a file that a backup would have overwritten.
type ExistsError struct{ File string }

func (e *ExistsError) Error() string { return e.File + " exists already" }

// Backup writes all that the store holds as of one moment into a new file, while daemons go on to use the store. The file
// stands under its name only when it is whole and on the disk. Errors: *ExistsError, those of transfer.Copy and the system.
func Backup(ctx context.Context, from Place, file string, o Options) (r Result, err error) {
	began := o.Now()
	if _, err := os.Lstat(file); err == nil {
		return r, &ExistsError{file}
	}
	src, err := from.read(ctx)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	if seal, err := src.Seal(ctx); err != nil {
		return r, err
	} else if seal != nil {
		return r, fmt.Errorf("cannot back up %s: %w", from, &schema.SealedError{Seal: *seal})
	}
	part, err := claim(file + ".part")
	if err != nil {
		return r, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("cannot back up %s: %w", from, err)
			err = errors.Join(err, removeAll(part.Name()))
		}
		err = errors.Join(err, part.Close())
	}()
	if r, err = backUp(ctx, src, from, part.Name(), o); err != nil {
		return r, err
	}
	if err := part.Sync(); err != nil {
		return r, err
	}
	crash.Point(crash.BackupWritten)
	if err := place(part.Name(), file); err != nil {
		return r, err
	}
	r.To, r.Took = file, o.Now().Sub(began)
	return r, syncDir(filepath.Dir(file))
}

func backUp(ctx context.Context, src source, from Place, part string, o Options) (r Result, err error) {
	r.From = from.String()
	if r.Facts, err = transfer.Look(ctx, src); err != nil {
		return r, err
	}
	generation, err := src.Generation(ctx)
	if err != nil {
		return r, err
	}
	dst, err := Place{File: part}.fill(ctx)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	seal := schema.Seal{Kind: schema.BackingUp, From: from.String(), At: o.Now().UTC(), Generation: generation}
	r.Report, err = transfer.Copy(ctx, src, dst, transfer.Options{Seal: seal, Mid: crash.BackupMid, Progress: o.Progress})
	if err != nil {
		return r, err
	}
	seal.Kind, seal.Epoch = schema.Backup, r.Epoch
	return r, dst.Finish(ctx, transfer.Finish{Seal: &seal})
}

// claim makes a file that is worked on, empty. What a killed one has left is removed; the error says where another works on it.
func claim(part string) (*os.File, error) {
	f, err := os.OpenFile(part, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, errors.Join(fmt.Errorf("another one is writing %s", part), f.Close())
	case err != nil:
		return nil, errors.Join(err, f.Close())
	}
	if err := errors.Join(f.Chmod(0o600), f.Truncate(0), removeBeside(part)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// beside are the endings of the files that SQLite keeps beside a database.
var beside = []string{"-wal", "-shm", "-journal"}

func removeBeside(path string) (err error) {
	for _, suffix := range beside {
		if rerr := os.Remove(path + suffix); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
	}
	return err
}

func removeAll(path string) error {
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, removeBeside(path))
}

// place gives a file its name, unless something has it already.
func place(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) { // this file system cannot
		if err = os.Link(from, to); err == nil {
			err = os.Remove(from)
		}
	}
	if errors.Is(err, fs.ErrExist) {
		return &ExistsError{to}
	}
	return err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
