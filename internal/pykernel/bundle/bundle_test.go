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
	if tree, err := UnpackTree(b.Dir, dir); err != nil || tree != b {
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

func TestUnpackTreeRefuses(t *testing.T) {
	dir, to := t.TempDir(), t.TempDir()
	if _, err := UnpackTree(dir, to); err == nil {
		t.Error("a folder without the launcher was taken")
	}
	if err := os.WriteFile(filepath.Join(dir, Launcher), make([]byte, maxTree+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := UnpackTree(dir, to); err == nil {
		t.Error("a tree without bound was read")
	}
	if _, err := UnpackTree(filepath.Join(dir, "none"), to); err == nil {
		t.Error("a missing folder was taken")
	}
}

func TestDigestTellsTreesApart(t *testing.T) {
	a := digest([]file{{"a.py", []byte("bc")}})
	if a == digest([]file{{"a.pyb", []byte("c")}}) || a == digest([]file{{"a.py", []byte("bd")}}) {
		t.Error("two trees have one digest")
	}
}

// P-119: the modules of the bindings are part of the tree and of its digest.
func TestModulesJoinTheTree(t *testing.T) {
	dir := t.TempDir()
	plain, err := Unpack(dir)
	if err != nil {
		t.Fatal(err)
	}
	one := Module{Name: "soma_sample", Source: []byte("x = 1\n")}
	with, err := Unpack(dir, one)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(with.Dir, "soma_sample.py")); err != nil || string(got) != "x = 1\n" {
		t.Errorf("module %q, %v", got, err)
	}
	if len(names(t, with.Dir)) != len(names(t, plain.Dir))+1 {
		t.Errorf("tree %v", names(t, with.Dir))
	}
	other, err := Unpack(dir, Module{Name: one.Name, Source: []byte("x = 2\n")})
	if err != nil {
		t.Fatal(err)
	}
	if plain.Digest == with.Digest || with.Digest == other.Digest {
		t.Error("trees that differ have one digest")
	}
	for name, twice := range map[string][]Module{"of the core": {{Name: "soma_kernel"}}, "twice": {one, one}} {
		if _, err := Unpack(dir, twice...); err == nil {
			t.Errorf("a module %s was taken", name)
		}
	}
}

// P-119: in a developer's tree a binding's module is looked for in the tree, then where it lies in the project, and else it
// is the embedded one; the whole is run from a folder named by its digest.
func TestDevelopersTree(t *testing.T) {
	root := t.TempDir()
	tree := filepath.Join(root, "pykernel", "python")
	write := func(text string, path ...string) {
		t.Helper()
		name := filepath.Join(append([]string{root}, path...)...)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("launch", "pykernel", "python", Launcher)
	write("tree", "pykernel", "python", "soma_a.py")
	write("project", "binding", "one", "soma_a.py")
	write("project", "binding", "one", "soma_b.py")
	modules := []Module{{"soma_a", []byte("embedded")}, {"soma_b", []byte("embedded")}, {"soma_c", []byte("embedded")}}
	dir := t.TempDir()
	b, err := UnpackTree(tree, dir, modules...)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{Launcher: "launch", "soma_a.py": "tree", "soma_b.py": "project", "soma_c.py": "embedded"} {
		if got, err := os.ReadFile(filepath.Join(b.Dir, name)); err != nil || string(got) != want {
			t.Errorf("%s is %q, %v; want %q", name, got, err, want)
		}
	}
	if b.Dir != filepath.Join(dir, b.Digest) {
		t.Errorf("it runs from %s", b.Dir)
	}
	write("changed", "binding", "one", "soma_b.py")
	if again, err := UnpackTree(tree, dir, modules...); err != nil || again.Digest == b.Digest {
		t.Errorf("a changed module has the digest of before: %v", err)
	}
	write("another", "binding", "two", "soma_b.py")
	if _, err := UnpackTree(tree, dir, modules...); err == nil {
		t.Error("a module that lies in two places was taken")
	}
}
