package scale

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// tick is the unit of the system's clock of CPU time.
const tick = 10 * time.Millisecond

// stat returns the parent of an OS process and the CPU time that it used, with that of its children that have ended.
func stat(pid int) (parent int, cpu time.Duration, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if parent, err = strconv.Atoi(fields[1]); err != nil {
		return 0, 0, err
	}
	for _, f := range fields[11:15] {
		n, err := strconv.Atoi(f)
		if err != nil {
			return 0, 0, err
		}
		cpu += time.Duration(n) * tick
	}
	return parent, cpu, nil
}

// tree returns the CPU time of an OS process and its children.
func tree(root int) (time.Duration, error) {
	_, total, err := stat(root)
	if err != nil {
		return 0, err
	}
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, err
	}
	for _, dir := range all {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		if parent, cpu, err := stat(pid); err == nil && parent == root { // others may have ended
			total += cpu
		}
	}
	return total, nil
}

// own returns the CPU time of this program.
func own() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// written returns how many bytes this program has given to disks.
func written() (n float64, err error) {
	b, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(b), "\nwrite_bytes:")
	_, err = fmt.Sscan(rest, &n)
	return n, err
}

// private returns the memory of an OS process that no other one shares, in bytes.
func private(pid int) (bytes float64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	for _, line := range strings.Split(string(b), "\n") {
		var kib float64
		if name, rest, _ := strings.Cut(line, ":"); strings.HasPrefix(name, "Private_") {
			if _, err := fmt.Sscan(rest, &kib); err != nil {
				return 0, err
			}
			bytes += kib * 1024
		}
	}
	return bytes, nil
}
