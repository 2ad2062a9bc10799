package spool

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"soma/ident"
)

// A spool survives its daemon and keeps only what is complete; slots are used again.
func TestSpools(t *testing.T) {
	dir := t.TempDir()
	load := func(keep ...ident.ID) *Slots {
		s := &Slots{Dir: dir}
		m := map[ident.ID]bool{}
		for _, id := range keep {
			m[id] = true
		}
		if err := s.Load(m); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	a, b, c := ident.New(time.Now()), ident.New(time.Now()), ident.New(time.Now())
	s := load()
	for id, text := range map[ident.ID]string{a: "first", b: "the second one", c: strings.Repeat("c", maxSlot+1)} {
		if err := s.Put(id, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	want := func(s *Slots, id ident.ID, text string) {
		t.Helper()
		got, found, err := s.Get(id)
		if string(got) != text || found != (text != "") || err != nil {
			t.Errorf("%.20q, %v, %v instead of %.20q", got, found, err, text)
		}
	}
	want(s, a, "first")
	s.Release(c)
	want(s, c, "")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = load(a, b)
	want(s, a, "first")
	want(s, b, "the second one")
	want(s, c, "")
	files, err := filepath.Glob(filepath.Join(dir, "*"+spoolSuffix))
	if err != nil || len(files) != 3 {
		t.Fatalf("files %v, %v", files, err)
	}
	large := 0
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info, err)
		}
		if info.Size() > maxSlot {
			large++
		}
	}
	if large != 0 {
		t.Errorf("%d free slots are large", large)
	}
	if err := s.Put(c, []byte("again")); err != nil {
		t.Fatal(err)
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "*")); len(files) != 3 {
		t.Errorf("a free slot was not used: %v", files)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// Cut off at any byte, an answer is not complete.
	for _, f := range files {
		whole, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(whole), "second") {
			continue
		}
		for n := range len(whole) {
			if err := os.WriteFile(f, whole[:n], 0o600); err != nil {
				t.Fatal(err)
			}
			s := load(a, b, c)
			if got, found, _ := s.Get(b); found {
				t.Errorf("cut at %d: %q", n, got)
			}
			_ = s.Close()
		}
	}
}
