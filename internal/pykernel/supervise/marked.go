package supervise

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

	"soma/internal/pykernel"
)

// Bounds of a search for marked processes.
const (
	maxEnviron = 1 << 20 // bytes of one process's environment that are looked at
	maxMarked  = 1024    // processes that are ended in one step
)

func marker(kernel string) string { return pykernel.Mark + "=" + kernel }

// endMarked ends what has left the group of a python kernel that has ended: SIGTERM, then SIGKILL. One that has cleared its
// environment is not found.
func endMarked(ctx context.Context, kernel string) error {
	for _, step := range [...]struct {
		sig  unix.Signal
		wait time.Duration
	}{{unix.SIGTERM, termWait}, {unix.SIGKILL, killWait}} {
		found := marked(kernel)
		if len(found) == 0 {
			return nil
		}
		for _, p := range found {
			_ = p.signal(step.sig) // one that has exited meanwhile
		}
		awaitGone(ctx, found, step.wait)
		for _, p := range found {
			p.close()
		}
	}
	left := marked(kernel)
	for _, p := range left {
		p.close()
	}
	if len(left) > 0 && ctx.Err() == nil {
		return fmt.Errorf("cannot end %d processes outside its group, the first has pid %d", len(left), left[0].pid)
	}
	return context.Cause(ctx)
}

// marked finds the living processes of this user that carry the mark of a python kernel. The caller closes them.
func marked(kernel string) (found []*osProcess) {
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
		if err != nil || int(info.Sys().(*syscall.Stat_t).Uid) != os.Getuid() || !carries(pid, kernel) {
			continue
		}
		p, err := openProcess(pid, "")
		if err != nil {
			continue
		}
		// Looked at once more: from here on the pid means this process or none.
		if !carries(pid, kernel) {
			p.close()
			continue
		}
		found = append(found, p)
	}
	return found
}

func carries(pid int, kernel string) bool {
	f, err := os.Open(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false
	}
	defer f.Close()
	env, _ := io.ReadAll(io.LimitReader(f, maxEnviron))
	return slices.ContainsFunc(bytes.Split(env, []byte{0}), func(entry []byte) bool { return string(entry) == marker(kernel) })
}

func awaitGone(ctx context.Context, all []*osProcess, wait time.Duration) {
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	look := time.NewTicker(groupGap)
	defer look.Stop()
	for slices.ContainsFunc(all, func(p *osProcess) bool { return !p.gone() }) {
		select {
		case <-look.C:
		case <-deadline.C:
			return
		case <-ctx.Done():
			return
		}
	}
}
