package power

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"unsafe"

	"modernc.org/libc"
	sqlite "modernc.org/sqlite/lib"
)

// page is what a disk writes whole.
const page = 4096

// disk knows of the files in one folder what would survive.
type disk struct {
	folder string

	mu     sync.Mutex
	files  map[string]*file   // by path
	opened map[uintptr]handle // by the address of SQLite's object
	lot    *rand.Rand
	// wrote is called after each write and sync, with mu held.
	wrote func(path, what string)
	syncs int
}

// file is one file: its content when its last fsync returned, and what was written since.
type file struct {
	safe  []byte
	dirty map[int64]bool // pages
}

// handle is one open file.
type handle struct {
	path    string
	methods sqlite.Tsqlite3_io_methods // of the real file system
}

// theDisk is the one of the running test.
var theDisk struct {
	sync.Once
	*disk
	vfs sqlite.Tsqlite3_vfs // the real one
}

// at returns what an address in SQLite's memory points to.
func at[T any](address uintptr) *T { return *(**T)(unsafe.Pointer(&address)) }

// function returns the Go function behind one of SQLite's pointers.
func function[F any](pointer uintptr) F {
	p := &pointer
	return *(*F)(unsafe.Pointer(p))
}

// pointer is the reverse, for functions that are no closures.
func pointer[F any](f F) uintptr { return *(*uintptr)(unsafe.Pointer(&f)) }

// watch puts the disk between SQLite and the files in a folder, for all databases that are opened from now on.
func watch(folder string, seed uint64) *disk {
	d := &disk{folder: folder, files: map[string]*file{}, opened: map[uintptr]handle{}, lot: rand.New(rand.NewPCG(seed, seed))}
	theDisk.Do(func() {
		tls := libc.NewTLS()
		real := sqlite.Xsqlite3_vfs_find(tls, 0)
		theDisk.vfs = *at[sqlite.Tsqlite3_vfs](real)
		own := libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(theDisk.vfs)))
		v := at[sqlite.Tsqlite3_vfs](own)
		*v = theDisk.vfs
		name, err := libc.CString("watched")
		if err != nil {
			panic(err)
		}
		v.FpNext, v.FzName, v.FxOpen = 0, name, pointer(open)
		if rc := sqlite.Xsqlite3_vfs_register(tls, own, 1); rc != sqlite.SQLITE_OK {
			panic(fmt.Sprint("cannot register a file system: ", rc))
		}
	})
	theDisk.disk = d
	return d
}

func open(tls *libc.TLS, vfs, path, object uintptr, flags int32, out uintptr) int32 {
	rc := function[func(*libc.TLS, uintptr, uintptr, uintptr, int32, uintptr) int32](theDisk.vfs.FxOpen)(tls, vfs, path, object, flags, out)
	d := theDisk.disk
	if rc != sqlite.SQLITE_OK || path == 0 || flags&(sqlite.SQLITE_OPEN_MAIN_DB|sqlite.SQLITE_OPEN_WAL) == 0 {
		return rc
	}
	name := libc.GoString(path)
	if filepath.Dir(name) != d.folder {
		return rc
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	table := at[uintptr](object) // the first field of the object
	h := handle{name, *at[sqlite.Tsqlite3_io_methods](*table)}
	d.opened[object] = h
	if d.files[name] == nil {
		d.files[name] = &file{dirty: map[int64]bool{}}
	}
	own := libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(h.methods))) // small, and kept for good
	m := at[sqlite.Tsqlite3_io_methods](own)
	*m = h.methods
	m.FxWrite, m.FxTruncate, m.FxSync, m.FxClose = pointer(write), pointer(truncate), pointer(sync_), pointer(close_)
	*table = own
	return rc
}

func write(tls *libc.TLS, object, from uintptr, n int32, offset int64) int32 {
	d := theDisk.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	h := d.opened[object]
	rc := function[func(*libc.TLS, uintptr, uintptr, int32, int64) int32](h.methods.FxWrite)(tls, object, from, n, offset)
	for p := offset / page; p*page < offset+int64(n); p++ {
		d.files[h.path].dirty[p] = true
	}
	d.tell(h.path, "write")
	return rc
}

func truncate(tls *libc.TLS, object uintptr, size int64) int32 {
	d := theDisk.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	h := d.opened[object]
	rc := function[func(*libc.TLS, uintptr, int64) int32](h.methods.FxTruncate)(tls, object, size)
	d.tell(h.path, "truncate")
	return rc
}

func sync_(tls *libc.TLS, object uintptr, flags int32) int32 {
	d := theDisk.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	h := d.opened[object]
	rc := function[func(*libc.TLS, uintptr, int32) int32](h.methods.FxSync)(tls, object, flags)
	if rc == sqlite.SQLITE_OK {
		d.syncs++
		if err := d.files[h.path].settle(h.path); err != nil {
			panic(err)
		}
		d.tell(h.path, "sync")
	}
	return rc
}

func close_(tls *libc.TLS, object uintptr) int32 {
	d := theDisk.disk
	d.mu.Lock()
	h := d.opened[object]
	delete(d.opened, object)
	d.mu.Unlock()
	return function[func(*libc.TLS, uintptr) int32](h.methods.FxClose)(tls, object)
}

func (d *disk) tell(path, what string) {
	if d.wrote != nil {
		d.wrote(path, what)
	}
}

// settle makes what was written safe.
func (f *file) settle(path string) error {
	real, err := os.Open(path)
	if err != nil {
		return err
	}
	defer real.Close()
	info, err := real.Stat()
	if err != nil {
		return err
	}
	f.safe = resize(f.safe, info.Size())
	for p := range f.dirty {
		if at := p * page; at < info.Size() {
			end := min(at+page, info.Size())
			if _, err := real.ReadAt(f.safe[at:end], at); err != nil {
				return err
			}
		}
	}
	clear(f.dirty)
	return nil
}

func resize(b []byte, n int64) []byte {
	if n <= int64(len(b)) {
		return b[:n]
	}
	return append(b, make([]byte, n-int64(len(b)))...)
}

// lose writes into a new folder what a loss of power at this moment may leave: what is safe, and a part of the pages that are
// not. mu is held.
func (d *disk) lose(folder string) error {
	share := d.lot.IntN(5) // of four
	for path, f := range d.files {
		real, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			continue
		} else if err != nil {
			return err
		}
		left := append([]byte(nil), f.safe...)
		if len(real) < len(left) && d.lot.IntN(2) == 0 {
			left = left[:len(real)] // the file was cut
		}
		for p := range f.dirty {
			from := p * page
			if d.lot.IntN(4) >= share || from >= int64(len(real)) {
				continue
			}
			end := min(from+page, int64(len(real)))
			if int64(len(left)) < end {
				left = resize(left, end)
			}
			copy(left[from:end], real[from:end])
		}
		name := strings.TrimPrefix(path, d.folder)
		if err := os.WriteFile(filepath.Join(folder, name), left, 0o600); err != nil {
			return err
		}
	}
	return nil
}
