package supervise

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Times of the signal ladder: the group has so long after SIGTERM, and after SIGKILL.
const (
	termWait = 2 * time.Second
	killWait = 5 * time.Second
	groupGap = 10 * time.Millisecond // between two looks at a group that is ending
)

// errProcessGone: no OS process of that pid and start time lives.
var errProcessGone = errors.New("the process is gone")

// osProcess is one OS process, told apart from a later one of the same pid by its start time (P-085). The pidfd keeps
// signals from reaching any other.
type osProcess struct {
	pid, pgid int
	leader    string // start time: field 22 of /proc/PID/stat
	fd        *os.File
	child     *exec.Cmd     // nil for one that an earlier daemon started
	exited    chan struct{} // closed by watchExit
	end       string        // how a child ended; set before exited is closed
}

// openProcess finds the process of pid with the given start time; an empty one takes whatever lives. The error is
// errProcessGone, wrapped, or that of the system.
func openProcess(pid int, leader string) (*osProcess, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return nil, fmt.Errorf("pid %d: %w", pid, errProcessGone)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open pid %d: %w", pid, err)
	}
	p := &osProcess{pid: pid, fd: os.NewFile(uintptr(fd), "pidfd"), exited: make(chan struct{})}
	st, err := readStat(pid)
	if err != nil || st.state == 'Z' || leader != "" && st.start != leader {
		p.fd.Close()
		return nil, fmt.Errorf("pid %d: %w", pid, errProcessGone)
	}
	p.leader, p.pgid = st.start, st.group
	return p, nil
}

// watchExit waits for the process to exit, reaps it if it is a child, and closes exited. It returns early when ctx ends;
// it costs no thread and no timer.
func (p *osProcess) watchExit(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = p.fd.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	conn, err := p.fd.SyscallConn()
	if err != nil {
		return fmt.Errorf("cannot watch pid %d: %w", p.pid, err)
	}
	exited := false
	look := func(fd uintptr) bool {
		ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(ready, 0)
		exited = err == nil && n > 0
		return exited
	}
	if err = conn.Read(look); err != nil {
		_ = conn.Control(func(fd uintptr) { look(fd) }) // one that exited as ctx ended is reaped all the same
	}
	switch {
	case exited:
	case ctx.Err() != nil:
		return context.Cause(ctx)
	default:
		return fmt.Errorf("cannot watch pid %d: %w", p.pid, err)
	}
	if p.child != nil {
		_ = p.child.Wait() // its error is its exit status
		p.end = describe(p.child.ProcessState)
	}
	close(p.exited)
	return nil
}

func describe(s *os.ProcessState) string {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return "it was ended by " + unix.SignalName(w.Signal())
	}
	return fmt.Sprintf("it exited with status %d", s.ExitCode())
}

// gone reports whether the process has exited; a zombie has.
func (p *osProcess) gone() bool {
	select {
	case <-p.exited:
		return true
	default:
	}
	st, err := readStat(p.pid)
	return err != nil || st.start != p.leader || st.state == 'Z'
}

// stopped reports whether the process cannot answer because it is stopped.
func (p *osProcess) stopped() bool {
	st, err := readStat(p.pid)
	return err == nil && st.start == p.leader && (st.state == 'T' || st.state == 't')
}

// signal reaches this very process or none.
func (p *osProcess) signal(sig unix.Signal) error {
	conn, err := p.fd.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	err = conn.Control(func(fd uintptr) { serr = unix.PidfdSendSignal(int(fd), sig, nil, 0) })
	return errors.Join(err, serr)
}

func (p *osProcess) close() { _ = p.fd.Close() }

// group is a process group: its number, and the start time of its leader.
type group struct {
	pgid   int
	leader string
}

// end is endGroups for one group.
func (g group) end(ctx context.Context) error { return endGroups(ctx, []group{g}) }

// endGroups ends every process of the groups by SIGTERM, then SIGKILL, and waits for them; nothing is left, or the error says
// what. The start time guards against a reused number: a group whose leader is another process by now is left alone.
func endGroups(ctx context.Context, all []group) error {
	for _, step := range [...]struct {
		sig  unix.Signal
		wait time.Duration
	}{{unix.SIGTERM, termWait}, {unix.SIGKILL, killWait}} {
		if all = living(all); len(all) == 0 {
			return nil
		}
		var err error
		for _, g := range all {
			if kerr := unix.Kill(-g.pgid, step.sig); kerr != nil && !errors.Is(kerr, unix.ESRCH) {
				err = errors.Join(err, fmt.Errorf("cannot signal group %d: %w", g.pgid, kerr))
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
	return fmt.Errorf("cannot end group %d: it lives on after SIGKILL", all[0].pgid)
}

func awaitGroups(ctx context.Context, all []group, wait time.Duration) (ended bool) {
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
func living(all []group) (live []group) {
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
		if g.pgid <= 1 || err == nil && !lives[g.pgid] || err != nil && errors.Is(unix.Kill(-g.pgid, 0), unix.ESRCH) {
			continue
		}
		if st, err := readStat(g.pgid); err == nil && st.start != g.leader {
			continue
		}
		live = append(live, g)
	}
	return live
}

type stat struct {
	state byte
	group int
	start string
}

// readStat reads /proc/PID/stat.
func readStat(pid int) (stat, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return stat{}, err
	}
	// The name in parentheses may hold anything; the last ")" ends it. The state is field 3.
	_, rest, ok := cutLast(b, ')')
	f := strings.Fields(string(rest))
	if !ok || len(f) < 20 {
		return stat{}, fmt.Errorf("cannot read the state of pid %d: %w", pid, fs.ErrInvalid)
	}
	group, err := strconv.Atoi(f[2])
	if err != nil {
		return stat{}, err
	}
	return stat{state: f[0][0], group: group, start: f[19]}, nil
}

func cutLast(b []byte, sep byte) (before, after []byte, ok bool) {
	i := bytes.LastIndexByte(b, sep)
	if i < 0 {
		return b, nil, false
	}
	return b[:i], b[i+1:], true
}

// lockHolder returns the pid of the process that holds the flock on path, 0 if nobody does. It takes no lock itself: even
// for an instant that could turn a starting python kernel away.
func lockHolder(path string) (int, error) {
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
