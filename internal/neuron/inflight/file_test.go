package inflight

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"soma/ident"
)

// N-45: what ran is read back after a kill, and nothing after a clean end.
func TestInflight(t *testing.T) {
	path := filepath.Join(t.TempDir(), "inflight")
	open := func(wantCrashed bool, want ...ident.ID) *File {
		t.Helper()
		f, crashed, ids, err := Open(path)
		if err != nil || crashed != wantCrashed || len(ids) != len(want) {
			t.Fatalf("crashed %v ids %v, %v", crashed, ids, err)
		}
		for i := range want {
			if ids[i] != want[i] {
				t.Fatalf("ids %v, want %v", ids, want)
			}
		}
		return f
	}
	a, b := ident.New(time.Now()), ident.New(time.Now())
	f := open(false)
	f.Begin(nil)
	f.Enter(0, a)
	f.Enter(1, b)
	f.Leave(0)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	g := open(true, b) // the first one is dead
	g.Begin(map[ident.ID]int{b: 2})
	h := open(true)
	if got := h.Suspects(); len(got) != 1 || got[b] != 2 {
		t.Errorf("suspects %v", got)
	}
	h.Begin(h.Suspects())
	h.Clear(b)
	if got := h.Suspects(); len(got) != 0 {
		t.Errorf("suspects %v", got)
	}
	for _, f := range []*File{f, g, h} {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := open(false).Close(); err != nil {
		t.Error(err)
	}
	var none *File
	none.Begin(nil)
	none.Enter(0, a)
	none.Leave(0)
	if err := none.Close(); err != nil {
		t.Error(err)
	}
}

// N-45: a file with holes is written out before it is mapped, with what it holds; one that is cut short under a running engine
// charges nothing more and ends nothing.
func TestInflightIsCutShort(t *testing.T) {
	path := filepath.Join(t.TempDir(), "inflight")
	a := ident.New(time.Now())
	if err := os.WriteFile(path, append(make([]byte, slotSize), append(a[:], 1)...), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 2*slotSize*slotCount); err != nil {
		t.Fatal(err)
	}
	f, _, ids, err := Open(path)
	if err != nil || len(ids) != 1 || ids[0] != a {
		t.Fatalf("ids %v, %v", ids, err)
	}
	if info, err := os.Stat(path); err != nil || info.Size() != slotSize*slotCount || info.Sys().(*syscall.Stat_t).Blocks*512 < info.Size() {
		t.Errorf("%+v, %v", info, err)
	}
	faults := 0
	f.Fault = func(any) { faults++ }
	f.Begin(nil)
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	f.Enter(0, a)
	f.Leave(0)
	f.Clear(a)
	if err := f.Close(); err != nil || faults != 1 {
		t.Errorf("%d faults, %v", faults, err)
	}
	if _, crashed, ids, err := Open(path); err != nil || crashed || len(ids) != 0 {
		t.Errorf("afterwards: crashed %v ids %v, %v", crashed, ids, err)
	}
}

// BenchmarkInflight is what a handler pays.
func BenchmarkInflight(b *testing.B) {
	f, _, _, err := Open(filepath.Join(b.TempDir(), "inflight"))
	if err != nil {
		b.Fatal(err)
	}
	a := ident.New(time.Now())
	for b.Loop() {
		f.Enter(0, a)
		f.Leave(0)
	}
}
