package bundle

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// P-119: the sources are unpacked once, to a directory named by their digest, which only the person may read.
func TestUnpack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kernel-bundles")
	b, err := Unpack(dir)
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Base(b.Dir) != b.Digest || len(b.Digest) != 64 {
		t.Errorf("bundle %+v", b)
	}
	for path, mode := range map[string]os.FileMode{dir: 0o700 | os.ModeDir, b.Dir: 0o700 | os.ModeDir, b.LauncherPath(): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	before := names(t, b.Dir)
	first, _ := os.Stat(b.LauncherPath())
	again, err := Unpack(dir)
	if err != nil || again != b {
		t.Fatalf("second unpack: %+v, %v", again, err)
	}
	if second, _ := os.Stat(b.LauncherPath()); !os.SameFile(first, second) {
		t.Error("a good file was written again")
	}
	if !slices.Equal(names(t, dir), []string{b.Digest, "lock"}) || !slices.Equal(names(t, b.Dir), before) {
		t.Errorf("left over: %v, %v", names(t, dir), names(t, b.Dir))
	}
	if tree, err := FromTree(b.Dir); err != nil || tree != b {
		t.Errorf("the unpacked tree as a tree: %+v, %v", tree, err)
	}
}

// P-119: a damaged tree is put right when it is used again.
func TestUnpackMends(t *testing.T) {
	dir := t.TempDir()
	b, err := Unpack(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := names(t, b.Dir)
	whole, _ := os.ReadFile(b.LauncherPath())
	if err := os.WriteFile(b.LauncherPath(), append([]byte("#"), whole[1:]...), 0o600); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(b.Dir, all[len(all)-1])
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	if _, err := Unpack(dir); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(b.LauncherPath()); string(got) != string(whole) {
		t.Error("the changed launcher stayed")
	}
	if !slices.Equal(names(t, b.Dir), all) {
		t.Errorf("files %v, want %v", names(t, b.Dir), all)
	}
}

func TestUnpackByManyAtOnce(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := Unpack(dir); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := len(names(t, dir)); n != 2 {
		t.Errorf("%d entries", n)
	}
}

func TestFromTreeRefuses(t *testing.T) {
	dir := t.TempDir()
	if _, err := FromTree(dir); err == nil {
		t.Error("a folder without the launcher was taken")
	}
	if err := os.WriteFile(filepath.Join(dir, Launcher), make([]byte, maxTree+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := FromTree(dir); err == nil {
		t.Error("a tree without bound was read")
	}
	if _, err := FromTree(filepath.Join(dir, "none")); err == nil {
		t.Error("a missing folder was taken")
	}
}

func TestDigestTellsTreesApart(t *testing.T) {
	a := digest([]file{{"a.py", []byte("bc")}})
	if a == digest([]file{{"a.pyb", []byte("c")}}) || a == digest([]file{{"a.py", []byte("bd")}}) {
		t.Error("two trees have one digest")
	}
}
