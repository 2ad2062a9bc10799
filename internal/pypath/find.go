package pypath

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// MinMajor and MinMinor are the oldest version of Python that cells run with.
const (
	MinMajor = 3
	MinMinor = 11
)

// probeTimeout bounds one run of an interpreter that is asked for its version.
const probeTimeout = 20 * time.Second

// Choice says which interpreter is meant. The first of Flag, Config and VirtualEnv that is not empty decides, else it is
// python3 on the search path; one that was named and does not work is an error and no reason to take another.
type Choice struct {
	Flag, Config string   // a path, or a name on the search path
	VirtualEnv   string   // the person's $VIRTUAL_ENV
	SearchPath   string   // the person's $PATH; relative entries are passed over
	Dir          string   // absolute; relative paths count from it
	Env          []string // what an interpreter that is asked runs with, as KEY=value
	CacheFile    string   // keeps answers between runs; empty: every call asks
}

// Interpreter is a python that cells can run with. It is a value.
type Interpreter struct {
	// Path is absolute: the interpreter itself, not a shim. In a virtual environment it is the environment's own link.
	Path                string
	Major, Minor, Micro int
}

// Version is such as 3.11.7.
func (i Interpreter) Version() string { return fmt.Sprintf("%d.%d.%d", i.Major, i.Minor, i.Micro) }

// Error says why no interpreter was found. Its text is one line; Do says what helps.
type Error struct {
	Path string // what was tried
	Why  string
	Do   string
}

func (e *Error) Error() string { return fmt.Sprintf("cannot use python %s: %s", e.Path, e.Why) }

// Find returns the interpreter that c means. The answer for a file is kept in c.CacheFile for a day while neither the file nor
// the interpreter behind it changes; a cache that cannot be read or written is passed over. The error is an [*Error], or
// that of ctx. Safe for concurrent use, also by several OS processes.
func Find(ctx context.Context, c Choice) (Interpreter, error) {
	path, origin, err := c.locate()
	if err != nil {
		return Interpreter{}, err
	}
	py, ok := cached(c.CacheFile, path)
	if !ok {
		if py, err = probe(ctx, path, c.Env); err != nil {
			return Interpreter{}, err
		}
		remember(c.CacheFile, path, py)
	}
	if py.Major != MinMajor || py.Minor < MinMinor {
		return Interpreter{}, &Error{
			Path: path, Why: fmt.Sprintf("it is Python %s (from %s) and %d.%d or newer is needed", py.Version(), origin, MinMajor, MinMinor),
			Do: "install a newer Python, or name one with --python PATH",
		}
	}
	return py, nil
}

// locate returns the file that c means, not yet asked, and where the wish for it came from.
func (c Choice) locate() (path, origin string, err error) {
	switch {
	case c.Flag != "":
		path, err = c.named(c.Flag)
		return path, "--python", err
	case c.Config != "":
		path, err = c.named(c.Config)
		return path, "the config", err
	case c.VirtualEnv != "":
		path = filepath.Join(c.VirtualEnv, "bin", "python")
		if !filepath.IsAbs(path) || !executable(path) {
			return "", "", &Error{Path: path, Why: "VIRTUAL_ENV names an environment without it", Do: "unset VIRTUAL_ENV, or name one with --python PATH"}
		}
		return path, "VIRTUAL_ENV", nil
	}
	path, err = c.named("python3")
	return path, "PATH", err
}

func (c Choice) named(name string) (string, error) {
	if strings.ContainsRune(name, filepath.Separator) {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(c.Dir, path)
		}
		if !executable(path) {
			return "", &Error{Path: path, Why: "there is no such program", Do: "name another with --python PATH"}
		}
		return path, nil
	}
	for _, dir := range filepath.SplitList(c.SearchPath) {
		// An empty or relative entry would let the folder one stands in choose the program.
		if path := filepath.Join(dir, name); filepath.IsAbs(dir) && executable(path) {
			return path, nil
		}
	}
	return "", &Error{
		Path: name, Why: "it is not on PATH",
		Do: fmt.Sprintf("install Python %d.%d or newer, or name one with --python PATH", MinMajor, MinMinor),
	}
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

const question = `import sys, json; print(json.dumps([sys.executable, *sys.version_info[:3]]))`

// probe runs path once. It runs in the root folder: a shim must not be steered by files of the folder one stands in.
func probe(ctx context.Context, path string, env []string) (Interpreter, error) {
	limited, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	cmd := exec.CommandContext(limited, path, "-I", "-S", "-c", question)
	cmd.Dir, cmd.Env = "/", env
	if env == nil {
		cmd.Env = []string{}
	}
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return Interpreter{}, ctx.Err()
	}
	if err != nil {
		why := err.Error()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			why = cmp.Or(lastLine(exit.Stderr), why)
		}
		return Interpreter{}, &Error{Path: path, Why: "it does not run: " + why, Do: "name another with --python PATH"}
	}
	py, err := parse(out)
	if err != nil || !executable(py.Path) {
		return Interpreter{}, &Error{Path: path, Why: "it does not answer like Python", Do: "name another with --python PATH"}
	}
	return py, nil
}

func parse(answer []byte) (Interpreter, error) {
	var py Interpreter
	fields := []any{&py.Path, &py.Major, &py.Minor, &py.Micro}
	if err := json.Unmarshal(answer, &fields); err != nil {
		return py, err
	}
	if len(fields) != 4 || !filepath.IsAbs(py.Path) {
		return py, fs.ErrInvalid
	}
	return py, nil
}

func lastLine(text []byte) string {
	lines := strings.Split(strings.TrimSpace(strings.ToValidUTF8(string(text), "\uFFFD")), "\n")
	last := lines[len(lines)-1]
	return last[:min(len(last), 200)]
}
