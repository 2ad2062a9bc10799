package config

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// maxSocketPath is the longest path that fits into a socket address on every Unix (sun_path is 104 bytes on some, with
// the end mark).
const maxSocketPath = 103

// ListenSocket listens on a Unix socket at path, of any length, with mode 0600. A socket that is there already is taken
// for a dead process's and replaced, so the caller must own the path (hold the home's lock); anything but a socket stays
// and is an error. Close removes the socket, unless another one has come to its path.
func ListenSocket(path string) (*SocketListener, error) {
	l, err := listenSocket(path)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", path, err)
	}
	return l, nil
}

func listenSocket(path string) (*SocketListener, error) {
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case info.Mode().Type() != fs.ModeSocket:
		return nil, errors.New("something that is no socket is in the way")
	default:
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	addr, release, err := socketAddr(path)
	if err != nil {
		return nil, err
	}
	defer release()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: addr})
	if err != nil {
		return nil, err
	}
	// The address may be a name that is free for another directory by the time of Close.
	l.SetUnlinkOnClose(false)
	if err := os.Chmod(path, 0o600); err != nil {
		_ = l.Close()
		return nil, err
	}
	own, err := os.Lstat(path)
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	return &SocketListener{UnixListener: l, path: path, own: own}, nil
}

// SocketListener is what ListenSocket returns. It is safe for use from many goroutines.
type SocketListener struct {
	*net.UnixListener
	path string
	own  fs.FileInfo
	once sync.Once
}

// Close stops listening and removes the socket if it is still its own.
func (l *SocketListener) Close() error {
	l.once.Do(func() { // while it is open its inode is not given to another file
		if l.there() {
			_ = os.Remove(l.path)
		}
	})
	return l.UnixListener.Close()
}

// there reports whether the socket at the path is still its own.
func (l *SocketListener) there() bool {
	info, err := os.Lstat(l.path)
	return err == nil && os.SameFile(info, l.own)
}

// DialSocket connects to the Unix socket at path, of any length. It returns the errors of net.Dialer, wrapped: fs.ErrNotExist
// where nothing is, ECONNREFUSED where nobody listens.
func DialSocket(ctx context.Context, path string) (net.Conn, error) {
	addr, release, err := socketAddr(path)
	if err != nil {
		return nil, fmt.Errorf("cannot reach %s: %w", path, err)
	}
	defer release()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", addr)
	if err != nil {
		return nil, fmt.Errorf("cannot reach %s: %w", path, err)
	}
	return conn, nil
}

// socketAddr returns an address for path that fits; it holds until release is called.
func socketAddr(path string) (addr string, release func(), err error) {
	if len(path) <= maxSocketPath {
		return path, func() {}, nil
	}
	dir, name := filepath.Split(path)
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	addr = fmt.Sprintf("/proc/self/fd/%d/%s", fd, name)
	if len(addr) > maxSocketPath {
		_ = unix.Close(fd)
		return "", nil, errors.New("the name of the socket is too long")
	}
	return addr, func() { _ = unix.Close(fd) }, nil
}
