package config

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Watch looks whether a home is still the one that a lock holds: whoever removes the home, its lock file or its socket
// leaves a daemon that nobody can reach, beside which a second one can start.
type Watch struct {
	lock   *Lock
	socket *SocketListener
	notify *os.File
}

// gone are the changes of a directory after which the lock or the socket may not be there any more. Writing to files of the
// home, and making them, are none of them.
const gone = unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR

// Watch begins to watch the home of a lock and a socket in it. Who has a Watch waits on it once. The error says that the
// system does not let it watch.
func (l *Lock) Watch(socket *SocketListener) (*Watch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("cannot watch home %s: %w", l.home.dir, err)
	}
	notify := os.NewFile(uintptr(fd), "inotify")
	if _, err := unix.InotifyAddWatch(fd, l.home.dir, gone); err != nil {
		_ = notify.Close()
		return nil, fmt.Errorf("cannot watch home %s: %w", l.home.dir, err)
	}
	return &Watch{l, socket, notify}, nil
}

// Wait waits until ctx ends, and returns nil, or until the home is not the lock's any more: then the error is a [*HomeError]
// that says what is missing. It does not wake up while nothing is removed from the home.
func (w *Watch) Wait(ctx context.Context) error {
	defer w.notify.Close()
	defer context.AfterFunc(ctx, func() { _ = w.notify.SetReadDeadline(time.Unix(1, 0)) })()
	events := make([]byte, 4096) // their content does not matter: what counts is looked at
	for {
		lost := w.lost()
		if ctx.Err() != nil {
			return nil
		}
		if lost != nil {
			return lost
		}
		if _, err := w.notify.Read(events); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("cannot watch home %s: %w", w.lock.home.dir, err)
		}
	}
}

func (w *Watch) lost() error {
	const why = "was removed or replaced while the daemon ran: this daemon ends, and the next command starts another"
	switch {
	case !w.lock.there():
		return &HomeError{w.lock.home.dir, fmt.Errorf("its lock file %s", why)}
	case !w.socket.there():
		return &HomeError{w.lock.home.dir, fmt.Errorf("its socket %s", why)}
	}
	return nil
}
