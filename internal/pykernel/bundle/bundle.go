package bundle

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"soma/internal/pykernel/python"
)

// Launcher is the file that the interpreter runs.
const Launcher = "soma_kernel.py"

// fresh begins the names of what is not whole yet.
const fresh = ".new-"

// maxTree bounds a tree that is read: a developer's folder may be the wrong one.
const maxTree = 8 << 20

// Bundle is one tree of sources, ready to run.
type Bundle struct {
	Dir    string // absolute
	Digest string // 64 hex digits, over the sorted names and contents
}

// LauncherPath is the file that the interpreter is given.
func (b Bundle) LauncherPath() string { return filepath.Join(b.Dir, Launcher) }

// Module is the source of one Python module that joins the tree of the core.
type Module struct {
	Name   string // without ".py"
	Source []byte
}

type file struct {
	name string
	text []byte
}

// Unpack writes the embedded sources and those of modules to dir/<digest> unless they are there, and returns them. What lies
// there is compared: a file that differs is replaced, so that a damaged tree heals. It is safe against other processes doing
// the same. A module with the name of another is an error.
func Unpack(dir string, modules ...Module) (Bundle, error) {
	files, err := read(python.Sources)
	if err != nil {
		return Bundle{}, err
	}
	if files, err = join(files, modules); err != nil {
		return Bundle{}, fmt.Errorf("cannot unpack the python sources: %w", err)
	}
	return lay(dir, files)
}

// UnpackTree is Unpack for a developer's tree (SOMA_PYTHON_DIR), read as it is now: the core is the *.py files of tree. The
// source of each module is tree/<name>.py, else the file of that name in a folder of tree/../../binding (where it lies in the
// project), else the one given.
func UnpackTree(tree, dir string, modules ...Module) (Bundle, error) {
	tree, err := filepath.Abs(tree)
	if err != nil {
		return Bundle{}, fmt.Errorf("cannot use the python tree: %w", err)
	}
	fail := func(err error) (Bundle, error) {
		return Bundle{}, fmt.Errorf("cannot use the python tree %s: %w", tree, err)
	}
	files, err := read(os.DirFS(tree))
	if err != nil {
		return fail(err)
	}
	if !has(files, Launcher) {
		return fail(fmt.Errorf("it has no %s", Launcher))
	}
	var others []Module
	for _, m := range modules {
		if has(files, m.Name+".py") {
			continue
		}
		beside, err := filepath.Glob(filepath.Join(tree, "..", "..", "binding", "*", m.Name+".py"))
		if err == nil && len(beside) > 1 {
			err = fmt.Errorf("two files are %s.py: %s, %s", m.Name, beside[0], beside[1])
		}
		if err != nil {
			return fail(err)
		}
		if len(beside) == 1 {
			if m.Source, err = readFile(os.DirFS(filepath.Dir(beside[0])), m.Name+".py", maxTree); err != nil {
				return fail(err)
			}
		}
		others = append(others, m)
	}
	if files, err = join(files, others); err != nil {
		return fail(err)
	}
	return lay(dir, files)
}

func has(files []file, name string) bool {
	return slices.ContainsFunc(files, func(f file) bool { return f.name == name })
}

// join adds modules to the files of a tree, in the order of names.
func join(files []file, modules []Module) ([]file, error) {
	for _, m := range modules {
		if has(files, m.Name+".py") {
			return nil, fmt.Errorf("two modules are named %s", m.Name)
		}
		files = append(files, file{m.Name + ".py", m.Source})
	}
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return files, nil
}

// lay makes dir/<digest> hold files.
func lay(dir string, files []file) (Bundle, error) {
	b := Bundle{Digest: digest(files)}
	var err error
	if dir, err = filepath.Abs(dir); err != nil {
		return Bundle{}, fmt.Errorf("cannot unpack the python sources: %w", err)
	}
	b.Dir = filepath.Join(dir, b.Digest)
	if err := unpack(dir, b.Dir, files); err != nil {
		return Bundle{}, fmt.Errorf("cannot unpack the python sources: %w", err)
	}
	return b, nil
}

// Sweep removes the trees of dir, and what a killed Unpack has left there, except those whose digests are in keep. A missing dir
// is no error.
func Sweep(dir string, keep map[string]bool) error {
	lock, err := hold(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot remove old python sources: %w", err)
	}
	defer lock.Close()
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		digest, _ := hex.DecodeString(e.Name())
		if old := len(digest) == sha256.Size && !keep[e.Name()]; old || strings.HasPrefix(e.Name(), fresh) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	if err != nil {
		return fmt.Errorf("cannot remove old python sources: %w", err)
	}
	return nil
}

// hold takes the lock of dir, which closing the file gives back.
func hold(dir string) (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		lock.Close()
		return nil, fmt.Errorf("flock: %w", err)
	}
	return lock, nil
}

// read returns the modules at the root of tree by name.
func read(tree fs.FS) ([]file, error) {
	names, err := fs.Glob(tree, "*.py")
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var files []file
	left := maxTree
	for _, name := range names {
		text, err := readFile(tree, name, left)
		if err != nil {
			return nil, err
		}
		left -= len(text)
		files = append(files, file{name, text})
	}
	return files, nil
}

func readFile(tree fs.FS, name string, most int) ([]byte, error) {
	f, err := tree.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	if err == nil && len(text) > most {
		err = fmt.Errorf("more than %d bytes of sources", maxTree)
	}
	return text, err
}

func digest(files []file) string {
	h := sha256.New()
	for _, f := range files {
		for _, part := range [][]byte{[]byte(f.name), f.text} {
			h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
			h.Write(part)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// unpack makes target hold files, under a lock in dir. A new tree appears whole, by a rename.
func unpack(dir, target string, files []file) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	lock, err := hold(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	if info, err := os.Lstat(target); err == nil && info.IsDir() {
		return mend(target, files)
	}
	tree, err := os.MkdirTemp(dir, fresh) // mode 0700
	if err != nil {
		return err
	}
	defer os.RemoveAll(tree) // in vain after the rename
	if err := mend(tree, files); err != nil {
		return err
	}
	return os.Rename(tree, target)
}

// mend replaces each file of dir that differs.
func mend(dir string, files []file) error {
	if err := os.Chmod(dir, 0o700); err != nil {
		return err
	}
	for _, f := range files {
		path := filepath.Join(dir, f.name)
		if info, err := os.Lstat(path); err == nil && info.Mode() == 0o600 && info.Size() == int64(len(f.text)) {
			if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, f.text) {
				continue
			}
		}
		if err := replace(path, f.text); err != nil {
			return err
		}
	}
	return nil
}

func replace(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), fresh) // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // in vain after the rename
	_, err = f.Write(text)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	return err
}
