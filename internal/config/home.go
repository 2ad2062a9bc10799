package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Env looks a variable up, like os.LookupEnv.
type Env func(name string) (value string, set bool)

// get returns the variable's value, or "" when it is not set.
func (e Env) get(name string) string { v, _ := e(name); return v }

// Home is the home directory of one instance. It is a value: it holds the absolute path only. The zero value is not usable.
type Home struct{ dir string }

// LocateHome returns the home that the environment names: $SOMA_HOME, else ~/.soma. Nothing is created. The error says
// that neither variable helps, or that the working directory of a relative path is gone.
func LocateHome(env Env) (Home, error) {
	dir := env.get("SOMA_HOME")
	if dir == "" {
		user := env.get("HOME")
		if user == "" {
			return Home{}, errors.New("cannot find the home directory: set SOMA_HOME or HOME")
		}
		dir = filepath.Join(user, ".soma")
	}
	return HomeAt(dir)
}

// HomeAt returns the home at dir, which may be relative to the working directory and need not exist.
func HomeAt(dir string) (Home, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return Home{}, fmt.Errorf("cannot find the home directory: %w", err)
	}
	return Home{abs}, nil
}

func (h Home) path(name string) string { return filepath.Join(h.dir, name) }

// Dir returns the absolute path of the home; the other methods return paths below it, whether or not they exist.
func (h Home) Dir() string { return h.dir }

// Database is the SQLite file.
func (h Home) Database() string { return h.path("soma.db") }

// Socket is the daemon's Unix socket, for [ListenSocket] and [DialSocket].
func (h Home) Socket() string { return h.path("soma.sock") }

// TokenFile holds the token that every request carries.
func (h Home) TokenFile() string { return h.path("token") }

// ConfigFile holds the settings.
func (h Home) ConfigFile() string { return h.path("config.yaml") }

// NodeFile holds the id of the node that this home is among those that share a store.
func (h Home) NodeFile() string { return h.path("node") }

// Certificate and CertificateKey are the PEM files of the home's own certificate for TCP.
func (h Home) Certificate() string    { return h.path("tls.crt") }
func (h Home) CertificateKey() string { return h.path("tls.key") }

// DaemonLog is the log of the daemon.
func (h Home) DaemonLog() string { return h.path("daemon.log") }

// PyHistory holds what the person has typed at the prompt of soma py.
func (h Home) PyHistory() string { return h.path("py_history") }

// Agents holds the person's agent templates.
func (h Home) Agents() string { return h.path("agents") }

// Hooks holds the person's hooks.
func (h Home) Hooks() string { return h.path("hooks") }

// Run holds one directory for each live python kernel.
func (h Home) Run() string { return h.path("run") }

// Output holds output that is read by offset.
func (h Home) Output() string { return h.path("output") }

// SavedNamespaces holds saved python namespaces.
func (h Home) SavedNamespaces() string { return h.path("kernels") }

// Bundles holds the python trees that live kernels run from.
func (h Home) Bundles() string { return h.path("kernel-bundles") }

// Cache holds what can be made again.
func (h Home) Cache() string { return h.path("cache") }

// Spool holds the streams of provider attempts that are not committed yet.
func (h Home) Spool() string { return h.path("spool") }

func (h Home) lockFile() string { return h.path("soma.lock") }

// HomeError says that the home cannot be used, and why.
type HomeError struct {
	Home string
	Err  error
}

func (e *HomeError) Error() string { return fmt.Sprintf("cannot use home %s: %v", e.Home, e.Err) }
func (e *HomeError) Unwrap() error { return e.Err }

// Create makes the home and its directories, each with mode 0700; it changes nothing where they exist with that mode. A
// directory of the person's that others may enter is taken over only while it is empty: a mistyped SOMA_HOME must not
// close a directory that others use. A full disk or a read-only file system is an error here already. Every error is a
// [*HomeError].
func (h Home) Create() error {
	if err := h.create(); err != nil {
		return &HomeError{h.dir, err}
	}
	return nil
}

func (h Home) create() error {
	if err := os.MkdirAll(h.dir, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(h.dir)
	if err != nil {
		return err
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; int(owner) != os.Geteuid() {
		return fmt.Errorf("it belongs to user id %d: set SOMA_HOME to a directory of your own", owner)
	}
	if mode := info.Mode().Perm(); mode != 0o700 {
		entries, err := os.ReadDir(h.dir)
		if err != nil {
			return err
		}
		if len(entries) > 0 {
			return fmt.Errorf("its mode is %04o, not 0700: if it is the right directory, run chmod 700 %s", mode, h.dir)
		}
		if err := os.Chmod(h.dir, 0o700); err != nil {
			return err
		}
	}
	for _, dir := range []string{
		h.Agents(), h.Hooks(), h.Run(), h.Output(), h.SavedNamespaces(), h.Bundles(), h.Cache(), h.Spool(),
	} {
		if err := private(dir); err != nil {
			return err
		}
	}
	return h.tryToWrite()
}

// leastSpace is what a start must be able to write, in bytes: less would be used up before anything useful happened.
const leastSpace = 256 << 10

func (h Home) tryToWrite() error {
	f, err := os.CreateTemp(h.Cache(), ".try-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(make([]byte, leastSpace))
	return errors.Join(err, f.Close())
}

// private makes dir a real directory with mode 0700.
func private(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is no directory", dir)
	}
	if info.Mode().Perm() == 0o700 {
		return nil
	}
	return os.Chmod(dir, 0o700)
}
