package prompt

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Bounds of the history: what of it is read, how large the file becomes before it is written anew, and the longest text kept.
const (
	maxTexts   = 1000
	maxFile    = 2 << 20
	maxHistory = 64 << 10
)

// History is the file of what a person has run, one JSON string to a line, the oldest first. Several programs may use one
// file at a time.
type History struct{ path string }

// HistoryAt returns the history in a file, which need not be there.
func HistoryAt(path string) History { return History{path} }

// Load returns the newest texts, the oldest of them first. Lines that are no JSON strings are left out.
func (h History) Load() ([]string, error) {
	f, err := os.Open(h.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the history: %w", err)
	}
	defer f.Close()
	return read(f)
}

func read(f *os.File) ([]string, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("cannot read the history: %w", err)
	}
	from := max(0, info.Size()-2*maxFile)
	content, err := io.ReadAll(io.NewSectionReader(f, from, info.Size()-from))
	if err != nil {
		return nil, fmt.Errorf("cannot read the history: %w", err)
	}
	var texts []string
	for line := range bytes.Lines(content) {
		var text string
		if json.Unmarshal(line, &text) == nil && text != "" {
			texts = append(texts, text)
		}
	}
	return texts[max(0, len(texts)-maxTexts):], nil
}

// Add adds a text at the end, unless it is longer than 64 KiB. The file and its bounds are the person's alone: 0600, 2 MiB.
func (h History) Add(text string) error {
	if text = strings.TrimSpace(text); text == "" || len(text) > maxHistory {
		return nil
	}
	line, err := json.Marshal(text)
	if err == nil {
		err = h.locked(func(f *os.File) error { return add(f, append(line, '\n')) })
	}
	if err != nil {
		return fmt.Errorf("cannot keep the history: %w", err)
	}
	return nil
}

// locked runs fn with the file, while no other program changes it.
func (h History) locked(fn func(*os.File) error) error {
	if err := os.MkdirAll(filepath.Dir(h.path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(h.path, os.O_RDWR|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
	if err == nil {
		err = fn(f)
	}
	return errors.Join(err, f.Close())
}

// add writes a line, and first the newest half of the file anew where it has become too large. It is written in place: a lock on
// a file that is replaced would hold nobody off, and what a crash in between can cost is some old lines.
func add(f *os.File, line []byte) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size()+int64(len(line)) > maxFile {
		texts, err := read(f)
		if err != nil {
			return err
		}
		var kept [][]byte
		size := 0
		for i := len(texts) - 1; i >= 0; i-- {
			old, err := json.Marshal(texts[i])
			if err != nil {
				return err
			}
			if size += len(old) + 1; size > maxFile/2 {
				break
			}
			kept = append([][]byte{append(old, '\n')}, kept...)
		}
		if err := f.Truncate(0); err != nil {
			return err
		}
		line = append(bytes.Join(kept, nil), line...)
	}
	_, err = f.Write(line)
	return err
}
