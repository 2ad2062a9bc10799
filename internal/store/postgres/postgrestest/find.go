package postgrestest

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// least is the oldest major version that the store supports.
const least = 15

// programs returns the folder of initdb and postgres, of the newest version that is installed.
func programs() (string, error) {
	dirs, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		return "", err
	}
	if p, err := exec.LookPath("postgres"); err == nil {
		dirs = append(dirs, filepath.Dir(p))
	}
	best, version := "", 0
	for _, dir := range dirs {
		if v := major(dir); v > version {
			best, version = dir, v
		}
	}
	if version < least {
		return "", fmt.Errorf("PostgreSQL %d or later is needed: ./test installs it", least)
	}
	return best, nil
}

// major returns the version of the programs in dir, 0 if they are not complete.
func major(dir string) int {
	if _, err := os.Stat(filepath.Join(dir, "initdb")); err != nil {
		return 0
	}
	out, err := exec.Command(filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return 0
	}
	words := strings.Fields(string(out)) // postgres (PostgreSQL) 15.4 (…)
	i := slices.Index(words, "(PostgreSQL)")
	if i < 0 || i+1 == len(words) {
		return 0
	}
	digits, _, _ := strings.Cut(words[i+1], ".")
	n, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}
	return n
}

// account returns whom the server runs as: the server refuses root, so then it is the system's user for it. nil means the
// caller's own.
func account() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("root cannot run PostgreSQL, and its user is missing: %w", err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}
