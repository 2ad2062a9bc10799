package engine

import (
	"fmt"
	"os"
	"syscall"

	"soma/ident"
)

// The file is one head byte page of slots: slot 0 says whether an engine runs, the others name the delivery whose handler
// runs on that worker. Each slot is 32 bytes: the id, then 1 while it is valid.
const (
	slotSize  = 32
	slotCount = 128
)

// inflight is a small file mapped into memory: it costs a turn two stores, and its content survives a kill of the program
// because it belongs to the operating system. A nil inflight remembers nothing.
type inflight struct {
	file *os.File
	mem  []byte
}

// openInflight maps the file and returns what an earlier program left: whether it ended without a stop, and the ids of the
// deliveries whose handlers ran then.
func openInflight(path string) (f *inflight, crashed bool, ids []ident.ID, err error) {
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
	if err := file.Truncate(slotSize * slotCount); err != nil {
		return nil, false, nil, err
	}
	mem, err := syscall.Mmap(int(file.Fd()), 0, slotSize*slotCount, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, false, nil, err
	}
	f = &inflight{file, mem}
	for slot := range slotCount - 1 {
		s := f.slot(slot)
		if s[ident.Size] == 1 {
			ids = append(ids, ident.ID(s[:ident.Size]))
		}
	}
	return f, mem[0] == 1, ids, nil
}

// begin forgets what was found and marks that an engine runs.
func (f *inflight) begin() {
	if f != nil {
		clear(f.mem)
		f.mem[0] = 1
	}
}

func (f *inflight) slot(n int) []byte {
	at := (n%(slotCount-1) + 1) * slotSize
	return f.mem[at : at+slotSize]
}

func (f *inflight) enter(slot int, id ident.ID) {
	if f == nil {
		return
	}
	s := f.slot(slot)
	copy(s, id[:])
	s[ident.Size] = 1
}

func (f *inflight) leave(slot int) {
	if f != nil {
		f.slot(slot)[ident.Size] = 0
	}
}

// close marks a clean end.
func (f *inflight) close() error {
	if f == nil {
		return nil
	}
	f.mem[0] = 0
	if err := syscall.Munmap(f.mem); err != nil {
		return fmt.Errorf("cannot unmap the file of running deliveries: %w", err)
	}
	f.mem = nil
	return f.file.Close()
}
