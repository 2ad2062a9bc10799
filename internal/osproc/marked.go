package osproc

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of a search for marked processes.
const (
	maxEnviron = 1 << 20 // bytes of one process's environment that are looked at
	maxMarked  = 1024    // processes that are ended in one step
	passes     = 5       // looks of KillMarked
)

// EndMarked ends the processes of this user that carry a mark, NAME=value, in their environment: SIGTERM, then SIGKILL. One that has
// cleared its environment is not found. Nothing is left, or the error says how much.
func EndMarked(ctx context.Context, mark string) error {
	for _, step := range [...]struct {
		sig  unix.Signal
		wait time.Duration
	}{{unix.SIGTERM, termWait}, {unix.SIGKILL, killWait}} {
		found := marked(mark)
		if len(found) == 0 {
			return nil
		}
		for _, p := range found {
			_ = p.Signal(step.sig) // one that has exited meanwhile
		}
		awaitGone(ctx, found, step.wait)
		for _, p := range found {
			p.Close()
		}
	}
	left := marked(mark)
	for _, p := range left {
		p.Close()
	}
	if len(left) > 0 && ctx.Err() == nil {
		return fmt.Errorf("cannot end %d marked processes, the first has pid %d", len(left), left[0].PID)
	}
	return context.Cause(ctx)
}

// KillMarked kills them at once, and what they have started in the meantime.
func KillMarked(mark string) {
	for range passes {
		found := marked(mark)
		for _, p := range found {
			_ = p.Signal(unix.SIGKILL) // one that has exited meanwhile
			p.Close()
		}
		if len(found) == 0 {
			return
		}
	}
}

// marked finds the living processes of this user that carry a mark. The caller closes them.
func marked(mark string) (found []*Process) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() || len(found) == maxMarked {
			continue
		}
		info, err := e.Info()
		if err != nil || int(info.Sys().(*syscall.Stat_t).Uid) != os.Getuid() || !carries(pid, mark) {
			continue
		}
		p, err := Open(pid, "")
		if err != nil {
			continue
		}
		// Looked at once more: from here on the pid means this process or none.
		if !carries(pid, mark) {
			p.Close()
			continue
		}
		found = append(found, p)
	}
	return found
}

func carries(pid int, mark string) bool {
	f, err := os.Open(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false
	}
	defer f.Close()
	env, _ := io.ReadAll(io.LimitReader(f, maxEnviron))
	return slices.ContainsFunc(bytes.Split(env, []byte{0}), func(entry []byte) bool { return string(entry) == mark })
}

func awaitGone(ctx context.Context, all []*Process, wait time.Duration) {
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	look := time.NewTicker(groupGap)
	defer look.Stop()
	for slices.ContainsFunc(all, func(p *Process) bool { return !p.Gone() }) {
		select {
		case <-look.C:
		case <-deadline.C:
			return
		case <-ctx.Done():
			return
		}
	}
}
