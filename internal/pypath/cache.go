package pypath

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"time"
)

const (
	// cacheAge bounds how long an answer holds: what a shim stands for can change without a trace in the shim.
	cacheAge = 24 * time.Hour
	// maxEntries and maxCache bound the cache file, in interpreters and bytes.
	maxEntries = 32
	maxCache   = 64 << 10
)

type entry struct {
	Interpreter
	Asked  time.Time
	File   stamp // of what was asked
	Target stamp // of the interpreter behind it
}

// stamp tells whether a file is still the same.
type stamp struct{ Size, Mtime int64 }

func stampOf(path string) (stamp, bool) {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{}, false
	}
	return stamp{info.Size(), info.ModTime().UnixNano()}, true
}

func readCache(file string) map[string]entry {
	entries := map[string]entry{}
	f, err := os.Open(file)
	if err != nil {
		return entries
	}
	defer f.Close()
	if err := json.NewDecoder(io.LimitReader(f, maxCache)).Decode(&entries); err != nil {
		return map[string]entry{}
	}
	return entries
}

func cached(file, path string) (Interpreter, bool) {
	if file == "" {
		return Interpreter{}, false
	}
	e, ok := readCache(file)[path]
	if !ok {
		return Interpreter{}, false
	}
	age := time.Since(e.Asked)
	asked, ok1 := stampOf(path)
	target, ok2 := stampOf(e.Path)
	return e.Interpreter, ok1 && ok2 && asked == e.File && target == e.Target && age >= 0 && age < cacheAge
}

// remember is best effort: without the cache the interpreter is asked again.
func remember(file, path string, py Interpreter) {
	if file == "" {
		return
	}
	asked, ok1 := stampOf(path)
	target, ok2 := stampOf(py.Path)
	if !ok1 || !ok2 {
		return
	}
	entries := readCache(file)
	if len(entries) >= maxEntries {
		clear(entries)
	}
	entries[path] = entry{py, time.Now(), asked, target}
	text, err := json.Marshal(entries)
	if err != nil {
		return
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".python-*") // mode 0600
	if err != nil {
		return
	}
	defer os.Remove(f.Name()) // in vain after the rename
	_, err = f.Write(text)
	if cerr := f.Close(); err == nil && cerr == nil {
		_ = os.Rename(f.Name(), file)
	}
}
