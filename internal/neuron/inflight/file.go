package inflight

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync/atomic"
	"syscall"

	"soma/ident"
)

// The file is a row of slots of 32 bytes. Slot 0 begins with 1 while an engine runs. The next ones name the delivery whose
// handler runs on a worker: the id, then 1 while it is valid. The rest are suspects: deliveries that ran at a crash and have
// no outbox row that could count it: the id, then 1, then the count.
const (
	slotSize     = 32
	slotCount    = 128
	firstSuspect = slotCount / 2
)

// File is a small file mapped into memory: it costs a turn two stores, and its content survives a kill of the program
// because it belongs to the operating system. A nil File remembers nothing, nor does one whose file was cut short.
type File struct {
	file  *os.File
	mem   []byte
	lost  atomic.Bool
	Fault func(cause any) // called once, when the file turns out to be cut short; may be nil
}

// Open maps the file and returns what an earlier program left: whether it ended without a stop, and the ids of the
// deliveries whose handlers ran then.
func Open(path string) (f *File, crashed bool, ids []ident.ID, err error) {
	if path == "" {
		return nil, true, nil, nil
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, false, nil, fmt.Errorf("cannot open the file of running deliveries: %w", err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("cannot map %s: %w", path, err)
			file.Close()
		}
	}()
	// Every block is written before it is mapped: a store to one that the disk has no room for would be a fault.
	size := slotSize * slotCount
	was := make([]byte, size)
	if _, err := io.ReadFull(file, was); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, false, nil, err
	}
	if _, err := file.WriteAt(was, 0); err != nil {
		return nil, false, nil, err
	}
	if err := file.Truncate(int64(size)); err != nil {
		return nil, false, nil, err
	}
	mem, err := syscall.Mmap(int(file.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, false, nil, err
	}
	for n := 1; n < firstSuspect; n++ {
		if s := was[n*slotSize:]; s[ident.Size] == 1 {
			ids = append(ids, ident.ID(s[:ident.Size]))
		}
	}
	return &File{file: file, mem: mem}, was[0] == 1, ids, nil
}

// touch runs fn, which reads or writes the mapping. A file that was cut short under it gives a fault, which ends the use of
// the file and not the program.
func (f *File) touch(fn func()) {
	if f == nil || f.lost.Load() {
		return
	}
	before := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(before)
		if v := recover(); v != nil && !f.lost.Swap(true) && f.Fault != nil {
			f.Fault(v)
		}
	}()
	fn()
}

// Suspects returns the counts of crashes that earlier runs kept.
func (f *File) Suspects() map[ident.ID]int {
	m := map[ident.ID]int{}
	f.touch(func() {
		for n := firstSuspect; n < slotCount; n++ {
			if s := f.slot(n); s[ident.Size] == 1 {
				m[ident.ID(s[:ident.Size])] = int(s[ident.Size+1])
			}
		}
	})
	return m
}

// Begin forgets what was found, keeps the suspects (as many as there is room for) and marks that an engine runs.
func (f *File) Begin(suspects map[ident.ID]int) {
	f.touch(func() {
		clear(f.mem)
		n := firstSuspect
		for id, count := range suspects {
			if n == slotCount {
				break
			}
			s := f.slot(n)
			copy(s, id[:])
			s[ident.Size], s[ident.Size+1] = 1, byte(min(count, 255))
			n++
		}
		f.mem[0] = 1
	})
}

// Clear takes a delivery that was settled from the suspects.
func (f *File) Clear(id ident.ID) {
	f.touch(func() {
		for n := firstSuspect; n < slotCount; n++ {
			if s := f.slot(n); ident.ID(s[:ident.Size]) == id {
				s[ident.Size] = 0
			}
		}
	})
}

func (f *File) slot(n int) []byte { return f.mem[n*slotSize : (n+1)*slotSize] }

// worker returns the slot of a worker; more than there are slots for share them.
func (f *File) worker(n int) []byte { return f.slot(1 + n%(firstSuspect-1)) }

// Enter notes that the handler of a delivery runs on a worker, by the worker's number from 0.
func (f *File) Enter(slot int, id ident.ID) {
	f.touch(func() {
		s := f.worker(slot)
		copy(s, id[:])
		s[ident.Size] = 1
	})
}

// Leave notes that no handler runs on the worker any more.
func (f *File) Leave(slot int) {
	f.touch(func() { f.worker(slot)[ident.Size] = 0 })
}

// Close marks a clean end.
func (f *File) Close() error {
	if f == nil {
		return nil
	}
	f.touch(func() { f.mem[0] = 0 })
	if err := syscall.Munmap(f.mem); err != nil {
		return fmt.Errorf("cannot unmap the file of running deliveries: %w", err)
	}
	f.mem = nil
	return f.file.Close()
}
