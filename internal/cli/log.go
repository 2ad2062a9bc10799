package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync"

	"golang.org/x/sys/unix"

	"soma/internal/config"
)

// The daemon's log is daemon.log and oldLogs files before it, each of at most maxLog bytes (I-17).
const (
	maxLog  = 10 << 20
	oldLogs = 2
)

// logWriter writes the daemon's log and puts a full file aside. It is safe for concurrent use.
type logWriter struct {
	name   string
	max    int64
	beside io.Writer // takes the same; nil: the standard output and error are the log themselves

	mu   sync.Mutex
	file *os.File
	size int64
}

// newLogWriter opens the log of a home. What the Go runtime says when it dies goes into the current file too. In the
// background the standard error is the log already, and goes along to each new file.
func newLogWriter(home config.Home, background bool, stderr io.Writer) (io.WriteCloser, error) {
	l := &logWriter{name: home.DaemonLog(), max: maxLog, beside: stderr}
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
func (l *logWriter) open() error {
	f, err := openLog(l.name, l.max)
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
func (l *logWriter) Write(line []byte) (int, error) {
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
func (l *logWriter) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file.Close()
}

// openLog opens a log for appending, mode 0600; one that has most bytes or more is put aside.
func openLog(name string, most int64) (*os.File, error) {
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
