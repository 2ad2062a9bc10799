package osproc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Times of the signal ladder: the group has so long after SIGTERM, and after SIGKILL.
const (
	termWait = 2 * time.Second
	killWait = 5 * time.Second
	groupGap = 10 * time.Millisecond // between two looks at a group that is ending
)

// Group is a process group: its number, and the start time of its leader.
type Group struct {
	PGID   int
	Leader string
}

// End is EndGroups for one group.
func (g Group) End(ctx context.Context) error { return EndGroups(ctx, []Group{g}) }

// Led reports whether the group's leader is the very process that it was.
func (g Group) Led() bool {
	st, err := readStat(g.PGID)
	return err == nil && st.start == g.Leader
}

// EndGroups ends every process of the groups by SIGTERM, then SIGKILL, and waits for them; nothing is left, or the error says
// what. The start time guards against a reused number: a group whose leader is another process by now is left alone.
func EndGroups(ctx context.Context, all []Group) error {
	for _, step := range [...]struct {
		sig  unix.Signal
		wait time.Duration
	}{{unix.SIGTERM, termWait}, {unix.SIGKILL, killWait}} {
		if all = living(all); len(all) == 0 {
			return nil
		}
		var err error
		for _, g := range all {
			if kerr := unix.Kill(-g.PGID, step.sig); kerr != nil && !errors.Is(kerr, unix.ESRCH) {
				err = errors.Join(err, fmt.Errorf("cannot signal group %d: %w", g.PGID, kerr))
			}
		}
		if awaitGroups(ctx, all, step.wait) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("cannot end group %d: it lives on after SIGKILL", all[0].PGID)
}

func awaitGroups(ctx context.Context, all []Group, wait time.Duration) (ended bool) {
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	look := time.NewTicker(groupGap)
	defer look.Stop()
	for len(living(all)) > 0 {
		select {
		case <-look.C:
		case <-deadline.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// living returns the groups of which a process lives, but for those that are another's by now. kill(2) would count zombies that
// nobody reaps.
func living(all []Group) (live []Group) {
	entries, err := os.ReadDir("/proc")
	lives := map[int]bool{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if st, err := readStat(pid); err == nil && st.state != 'Z' && st.state != 'X' {
			lives[st.group] = true
		}
	}
	for _, g := range all {
		if g.PGID <= 1 || err == nil && !lives[g.PGID] || err != nil && errors.Is(unix.Kill(-g.PGID, 0), unix.ESRCH) {
			continue
		}
		if st, err := readStat(g.PGID); err == nil && st.start != g.Leader {
			continue
		}
		live = append(live, g)
	}
	return live
}
