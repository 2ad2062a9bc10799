package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Holder says who holds a home: what a second daemon needs to name the first.
type Holder struct {
	PID    int    `json:"pid"`
	Socket string `json:"socket"`
}

// dead reports whether the process that wrote itself down is gone.
func (h Holder) dead() bool { return h.PID > 0 && errors.Is(unix.Kill(h.PID, 0), unix.ESRCH) }

// LockedError says that another OS process holds the home. Holder is zero if that process died or has not written yet.
type LockedError struct {
	Home string
	Holder
}

func (e *LockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("cannot lock home %s: another daemon is starting on it", e.Home)
	}
	return fmt.Sprintf("cannot lock home %s: the daemon with pid %d holds it (socket %s)", e.Home, e.PID, e.Socket)
}

// Lock is the exclusive hold on a home; the kernel frees it when the OS process ends, however it ends.
type Lock struct {
	file *os.File
	home Home
}

// A child that a killed daemon was about to start shares its hold until it runs another program: deadWait is how long such
// a hold is waited for, deadGap the time between two looks.
const (
	deadWait = time.Second
	deadGap  = 5 * time.Millisecond
)

// Lock takes the home for this OS process, before the store is opened, and writes pid and socket into the lock file. The
// home must exist. Errors: [*LockedError] if another process holds it, at once where that one lives, else [*HomeError]. Child
// processes do not inherit the hold.
func (h Home) Lock() (*Lock, error) {
	f, err := os.OpenFile(h.lockFile(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, &HomeError{h.dir, err}
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	for until := time.Now().Add(deadWait); errors.Is(err, unix.EWOULDBLOCK) && readHolder(f).dead() && time.Now().Before(until); {
		time.Sleep(deadGap)
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		holder := readHolder(f)
		_ = f.Close()
		return nil, &LockedError{h.dir, holder}
	case err != nil:
		_ = f.Close()
		return nil, &HomeError{h.dir, fmt.Errorf("flock: %w", err)}
	}
	text, err := json.Marshal(Holder{os.Getpid(), h.Socket()})
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt(text, 0)
	}
	if err != nil {
		_ = f.Close()
		return nil, &HomeError{h.dir, err}
	}
	return &Lock{f, h}, nil
}

// Release frees the home. The file stays: removing it would let two processes lock two files of one name.
func (l *Lock) Release() error {
	err := l.file.Truncate(0)
	return errors.Join(err, l.file.Close())
}

// there reports whether the lock file at its path is still the one that is held.
func (l *Lock) there() bool {
	own, err := l.file.Stat()
	if err != nil {
		return false
	}
	info, err := os.Lstat(l.home.lockFile())
	return err == nil && os.SameFile(info, own)
}

// Holder returns who holds the home, nil if nobody does. It makes no file.
func (h Home) Holder() *LockedError {
	f, err := os.Open(h.lockFile())
	if err != nil {
		return nil
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		return nil
	}
	return &LockedError{h.dir, readHolder(f)}
}

// readHolder waits a moment for a holder that has locked the file and not yet written it.
func readHolder(f *os.File) Holder {
	for range 20 {
		var holder Holder
		text, err := io.ReadAll(io.NewSectionReader(f, 0, 64<<10))
		if err == nil && json.Unmarshal(text, &holder) == nil && holder.PID > 0 {
			return holder
		}
		time.Sleep(5 * time.Millisecond)
	}
	return Holder{}
}
