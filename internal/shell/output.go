package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"soma/internal/plaintext"
	"soma/wire"
)

// recorder keeps what a command prints: cleaned, whole characters, at most wire.MaxShellKept bytes.
type recorder struct {
	file    *os.File
	cleaner plaintext.Cleaner
	half    []byte // the beginning of a character

	mu     sync.Mutex
	bytes  int64 // printed, cleaned
	kept   int64
	broken bool // nothing more can be kept
}

func newRecorder(path string) (*recorder, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("cannot keep the output: %w", err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot keep the output: %w", err)
	}
	return &recorder{file: f}, nil
}

// take reads to the end or the deadline.
func (r *recorder) take(from io.Reader) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		r.add(buffer[:n], err != nil)
		if err != nil {
			return
		}
	}
}

// add takes the next bytes; with last a character that is not whole is none.
func (r *recorder) add(b []byte, last bool) {
	b = append(r.half, b...)
	r.half = nil
	if !last {
		for cut := 1; cut < utf8.UTFMax && cut <= len(b); cut++ {
			if tail := b[len(b)-cut:]; utf8.RuneStart(tail[0]) {
				if !utf8.FullRune(tail) {
					r.half = append([]byte(nil), tail...)
					b = b[:len(b)-cut]
				}
				break
			}
		}
	}
	text := r.cleaner.Clean(string([]rune(string(b))))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bytes += int64(len(text))
	if room := wire.MaxShellKept - r.kept; int64(len(text)) > room {
		for room > 0 && !utf8.RuneStart(text[room]) {
			room--
		}
		text = text[:room]
		defer func() { r.broken = true }()
	}
	if r.broken || text == "" {
		return
	}
	n, err := r.file.WriteString(text)
	r.kept += int64(n)
	r.broken = err != nil // a full disk stops no command
}

func (r *recorder) sizes() (bytes, kept int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bytes, r.kept
}

func (r *recorder) close() { _ = r.file.Close() }

// Output returns a page of what a command has printed, at most limit bytes from a byte offset on, cut on characters; it starts
// and stops nothing. Errors: *wire.Error with not_found, or output_lost for what is not kept any more.
func (h *Host) Output(ctx context.Context, session, id string, offset int64, limit int) (wire.ShellPage, error) {
	c, err := h.Command(ctx, session, id)
	if err != nil {
		return wire.ShellPage{}, err
	}
	p := wire.ShellPage{Offset: offset, Running: c.State != ended}
	from, text, size, err := readPage(h.file(session, id), offset, limit)
	if errors.Is(err, fs.ErrNotExist) {
		if err = nil; c.Kept > 0 {
			err = wire.Errorf(wire.OutputLost, "the output of shell command %s is not kept any more", id)
		}
	}
	if err != nil {
		return p, err
	}
	p.Offset, p.Text, p.Size = from, text, max(size, c.Bytes)
	if next := from + int64(len(text)); p.Running || next < size && text != "" {
		p.Next = &next
	}
	return p, nil
}

// readPage reads whole characters of a file from an offset on, or from the next one where that is within a character, and the
// size of the file.
func readPage(path string, offset int64, limit int) (from int64, text string, size int64, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return offset, "", 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return offset, "", 0, err
	}
	b := make([]byte, limit)
	n, err := f.ReadAt(b, offset)
	if err != nil && err != io.EOF {
		return offset, "", 0, err
	}
	b = b[:n]
	for ; len(b) > 0 && !utf8.RuneStart(b[0]); offset++ {
		b = b[1:]
	}
	for len(b) > 0 && !utf8.Valid(b) { // the file holds whole characters: at most the last one is cut
		b = b[:len(b)-1]
	}
	return offset, string(b), info.Size(), nil
}

// Bounds of what is kept of all commands.
const (
	keptFor    = 14 * 24 * time.Hour
	sweepEvery = time.Hour
)

// sweep removes old outputs until ctx ends.
func (h *Host) sweep(ctx context.Context) error {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		h.removeOld()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// removeOld removes the files of commands that ended two weeks ago, and folders that are empty. What cannot be removed stays
// until the next time.
func (h *Host) removeOld() {
	now := h.o.Now()
	folders, _ := os.ReadDir(h.o.Dir)
	for _, folder := range folders {
		dir := filepath.Join(h.o.Dir, folder.Name())
		files, _ := os.ReadDir(dir)
		for _, file := range files {
			if info, err := file.Info(); err == nil && info.Mode().IsRegular() && now.Sub(info.ModTime()) > keptFor {
				_ = os.Remove(filepath.Join(dir, file.Name()))
			}
		}
		_ = os.Remove(dir) // fails while something is in it
	}
}

// ForgetSession removes the outputs of a session that was removed.
func (h *Host) ForgetSession(session string) error { return os.RemoveAll(h.folder(session)) }
