package osproc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// LockHolder returns the pid of the process that holds the flock on path, 0 if nobody does. It takes no lock itself: even
// for an instant that could turn a starting python kernel away.
func LockHolder(path string) (int, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	inode := strconv.FormatUint(info.Sys().(*syscall.Stat_t).Ino, 10)
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return 0, err
	}
	// 1: FLOCK  ADVISORY  WRITE 4711 fe:01:123456 0 EOF
	for line := range strings.Lines(string(locks)) {
		f := strings.Fields(line)
		if len(f) < 6 || f[1] != "FLOCK" || f[5][strings.LastIndexByte(f[5], ':')+1:] != inode {
			continue
		}
		// The device number may differ from stat's on layered file systems, so the process itself is asked.
		pid, err := strconv.Atoi(f[4])
		if err != nil || pid <= 0 {
			continue
		}
		if holds(pid, info) {
			return pid, nil
		}
	}
	return 0, nil
}

// holds reports whether the process has the file open.
func holds(pid int, file os.FileInfo) bool {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	fds, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, fd := range fds {
		if info, err := os.Stat(dir + "/" + fd.Name()); err == nil && os.SameFile(info, file) {
			return true
		}
	}
	return false
}
