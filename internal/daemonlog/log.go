package daemonlog

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync"

	"golang.org/x/sys/unix"
)

// The daemon's log is daemon.log and oldLogs files before it, each of at most maxSize bytes (I-17).
const (
	maxSize = 10 << 20
	oldLogs = 2
)

// writer writes the daemon's log and puts a full file aside. It is safe for concurrent use.
type writer struct {
	name   string
	max    int64
	beside io.Writer // takes the same; nil: the standard output and error are the log themselves

	mu   sync.Mutex
	file *os.File
	size int64
}

// Open opens the log at path; its writer is safe for concurrent use. What the Go runtime says when it dies goes into the current file too. In the
// background the standard error is the log already, and goes along to each new file.
func Open(path string, background bool, stderr io.Writer) (io.WriteCloser, error) {
	l := &writer{name: path, max: maxSize, beside: stderr}
	if background {
		if f, ok := stderr.(*os.File); !ok || !isNamed(f, l.name) { // whoever started it has another place for the log
			return kept{stderr}, nil
		}
		l.beside = nil
	}
	if err := l.open(); err != nil {
		return nil, err
	}
	return l, nil
}

type kept struct{ io.Writer }

func (kept) Close() error { return nil }

func isNamed(f *os.File, name string) bool {
	here, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(name)
	return err == nil && os.SameFile(here, there)
}

// open begins to write to the file that has the log's name.
func (l *writer) open() error {
	f, err := appendTo(l.name, l.max)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case l.beside == nil:
		err = errors.Join(unix.Dup3(int(f.Fd()), unix.Stdout, 0), unix.Dup3(int(f.Fd()), unix.Stderr, 0))
	default:
		err = debug.SetCrashOutput(f, debug.CrashOptions{})
	}
	if err != nil {
		_ = f.Close()
		return err
	}
	if l.file != nil {
		_ = l.file.Close()
	}
	l.file, l.size = f, info.Size()
	return nil
}

// Write writes one line. Where no new file can be begun the old one goes on: a log too long is better than none.
func (l *writer) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size > 0 && l.size+int64(len(line)) > l.max {
		putAside(l.name)
		_ = l.open()
	}
	n, err := l.file.Write(line)
	l.size += int64(n)
	if l.beside != nil { // a full disk is told there, and a closed terminal ends nothing here
		_, besideErr := l.beside.Write(line)
		err = errors.Join(err, besideErr)
	}
	return n, err
}

// Close closes the file. The runtime's last words still go there: a panic gets here before it is printed.
func (l *writer) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file.Close()
}

// Append opens the log at path for appending, mode 0600, for what is written to it by another process; a full one is put
// aside first.
func Append(path string) (*os.File, error) { return appendTo(path, maxSize) }

func appendTo(name string, most int64) (*os.File, error) {
	if info, err := os.Stat(name); err == nil && info.Size() >= most {
		putAside(name)
	}
	return os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
}

// putAside gives the files of a log their next names; the oldest goes.
func putAside(name string) {
	for i := oldLogs; i > 1; i-- {
		_ = os.Rename(fmt.Sprintf("%s.%d", name, i-1), fmt.Sprintf("%s.%d", name, i))
	}
	_ = os.Rename(name, name+".1")
}
