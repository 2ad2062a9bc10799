package daemon

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// passed are the variables that python kernels get from the daemon's environment; names that end in * are prefixes.
var passed = []string{"HOME", "PATH", "USER", "LOGNAME", "SHELL", "LANG", "LC_*", "TZ", "TMPDIR", "VIRTUAL_ENV", "SOMA_TEST_TIME_SCALE"}

// pykernelEnv is the whole environment of python kernels: an allow-list, and what the person named in kernel_env. A provider
// key never is in it.
func (d *daemon) pykernelEnv() []string {
	var env []string
	for _, entry := range d.o.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		allowed := slices.Contains(d.config.KernelEnv, name) || slices.ContainsFunc(passed, func(p string) bool {
			prefix, wild := strings.CutSuffix(p, "*")
			return name == p || wild && strings.HasPrefix(name, prefix)
		})
		if allowed {
			env = append(env, entry)
		}
	}
	return env
}

// room is asked by turns, which run only after all parts were made.
func (d *daemon) room(kernel string) error { return d.sup.Room(kernel) }

// python finds the interpreter of sessions that name none: the configured one, else python3 on PATH; empty if there is none.
func (d *daemon) python() string {
	name := d.config.Python
	if name == "" {
		name = "python3"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return ""
	}
	if path, err = filepath.Abs(path); err != nil {
		return ""
	}
	return path
}
