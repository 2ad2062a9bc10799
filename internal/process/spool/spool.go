package spool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"soma/ident"
)

// Slots keep complete answers until their commit, in files that are written but not synced: they survive the daemon (not
// the machine), so that after a kill a complete answer is taken from here and never paid for twice.
//
// A file is a slot that is overwritten in place, again and again: making and removing a file for each attempt would put
// metadata into the file system's journal and slow every fsync of the store down (measured: a quarter of the steps).
type Slots struct {
	Dir string // the folder of the files, which is there

	mu   sync.Mutex
	free []*slot
	used map[ident.ID]*slot
	next int // number of the next file
}

type slot struct{ file *os.File }

const (
	spoolSuffix = ".answer"
	// a slot holds the attempt's id, the length and the checksum of the answer, and the answer
	spoolHeader = ident.Size + 4 + 4
)

// Load finds the slots that an earlier daemon left. Those of the attempts in keep stay used until they are released.
func (s *Slots) Load(keep map[ident.ID]bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = map[ident.ID]*slot{}
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return fmt.Errorf("cannot look for spooled answers: %w", err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), spoolSuffix) {
			continue
		}
		s.next = max(s.next, number(e.Name())+1)
		f, err := os.OpenFile(filepath.Join(s.Dir, e.Name()), os.O_RDWR, 0)
		if err != nil {
			return fmt.Errorf("cannot open a spooled answer: %w", err)
		}
		sl := &slot{f}
		if id, _, err := sl.read(); err == nil && keep[id] {
			s.used[id] = sl
		} else {
			s.free = append(s.free, sl)
		}
	}
	return nil
}

func number(name string) int {
	var n int
	_, _ = fmt.Sscanf(name, "%d", &n) // a foreign name counts as 0
	return n
}

// Put keeps a complete answer.
func (s *Slots) Put(id ident.ID, answer []byte) error {
	sl, err := s.take(id)
	if err != nil {
		return fmt.Errorf("cannot spool an answer: %w", err)
	}
	b := make([]byte, spoolHeader, spoolHeader+len(answer))
	copy(b, id[:])
	binary.BigEndian.PutUint32(b[ident.Size:], uint32(len(answer)))
	binary.BigEndian.PutUint32(b[ident.Size+4:], crc32.ChecksumIEEE(answer))
	if _, err := sl.file.WriteAt(append(b, answer...), 0); err != nil {
		s.Release(id)
		return fmt.Errorf("cannot spool an answer: %w", err)
	}
	return nil
}

func (s *Slots) take(id ident.ID) (*slot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.free); n > 0 {
		sl := s.free[n-1]
		s.free, s.used[id] = s.free[:n-1], sl
		return sl, nil
	}
	f, err := os.OpenFile(filepath.Join(s.Dir, fmt.Sprintf("%04d%s", s.next, spoolSuffix)), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	s.next++
	s.used[id] = &slot{f}
	return s.used[id], nil
}

// Get returns the answer of an attempt; found is false where none is complete.
func (s *Slots) Get(id ident.ID) (answer []byte, found bool, err error) {
	s.mu.Lock()
	sl := s.used[id]
	s.mu.Unlock()
	if sl == nil {
		return nil, false, nil
	}
	got, answer, err := sl.read()
	if err != nil || got != id {
		return nil, false, err
	}
	return answer, true, nil
}

// Release gives the slot of an attempt back once its outcome is committed.
func (s *Slots) Release(id ident.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sl := s.used[id]; sl != nil {
		delete(s.used, id)
		sl.shrink()
		s.free = append(s.free, sl)
	}
}

// Scrub empties the free slots.
func (s *Slots) Scrub() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, sl := range s.free {
		errs = append(errs, sl.file.Truncate(0))
	}
	return errors.Join(errs...)
}

// Close closes the files.
func (s *Slots) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, sl := range s.used {
		errs = append(errs, sl.file.Close())
	}
	for _, sl := range s.free {
		errs = append(errs, sl.file.Close())
	}
	s.used, s.free = map[ident.ID]*slot{}, nil
	return errors.Join(errs...)
}

// maxAnswer bounds an answer, in bytes: what lies in a file may be anything.
const maxAnswer = 16 << 20

// maxSlot bounds a slot that is free, in bytes.
const maxSlot = 1 << 20

// shrink cuts off what one long answer left. A file that cannot be cut only takes more room.
func (sl *slot) shrink() {
	if info, err := sl.file.Stat(); err == nil && info.Size() > maxSlot {
		_ = sl.file.Truncate(maxSlot)
	}
}

var errTorn = errors.New("the spooled answer is not complete")

// read returns what a slot holds; errTorn for one that a kill cut off.
func (sl *slot) read() (id ident.ID, answer []byte, err error) {
	var head [spoolHeader]byte
	if _, err := sl.file.ReadAt(head[:], 0); err != nil {
		if errors.Is(err, io.EOF) {
			err = errTorn
		}
		return id, nil, err
	}
	copy(id[:], head[:])
	n := binary.BigEndian.Uint32(head[ident.Size:])
	if n > maxAnswer {
		return id, nil, errTorn
	}
	answer = make([]byte, n)
	if _, err := sl.file.ReadAt(answer, spoolHeader); err != nil || crc32.ChecksumIEEE(answer) != binary.BigEndian.Uint32(head[ident.Size+4:]) {
		return id, nil, errTorn
	}
	return id, answer, nil
}
