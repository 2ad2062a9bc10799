package osproc

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

// ErrGone: no OS process of that pid and start time lives.
var ErrGone = errors.New("the process is gone")

// Process is one OS process, told apart from a later one of the same pid by its start time (P-085). The pidfd keeps
// signals from reaching any other.
type Process struct {
	PID, PGID int
	Leader    string        // start time: field 22 of /proc/PID/stat
	Exited    chan struct{} // closed by WatchExit
	How       string        // how a child ended; set before Exited is closed
	fd        *os.File
	child     *exec.Cmd // nil for one that is no child of this process
}

// Open finds the process of pid with the given start time; an empty one takes whatever lives. The error is
// ErrGone, wrapped, or that of the system.
func Open(pid int, leader string) (*Process, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return nil, fmt.Errorf("pid %d: %w", pid, ErrGone)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open pid %d: %w", pid, err)
	}
	p := &Process{PID: pid, fd: os.NewFile(uintptr(fd), "pidfd"), Exited: make(chan struct{})}
	st, err := readStat(pid)
	if err != nil || st.state == 'Z' || leader != "" && st.start != leader {
		p.fd.Close()
		return nil, fmt.Errorf("pid %d: %w", pid, ErrGone)
	}
	p.Leader, p.PGID = st.start, st.group
	return p, nil
}

// Child says that the process is this child, which leads a group of its own; WatchExit reaps it. It is called before that.
func (p *Process) Child(cmd *exec.Cmd) { p.child, p.PGID = cmd, cmd.Process.Pid }

// ExitCode is that of a child that has exited and was reaped, -1 where a signal has ended it.
func (p *Process) ExitCode() int { return p.child.ProcessState.ExitCode() }

// WatchExit waits for the process to exit, reaps it if it is a child, and closes Exited. It returns early when ctx ends;
// it costs no thread and no timer.
func (p *Process) WatchExit(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = p.fd.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	conn, err := p.fd.SyscallConn()
	if err != nil {
		return fmt.Errorf("cannot watch pid %d: %w", p.PID, err)
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
		return fmt.Errorf("cannot watch pid %d: %w", p.PID, err)
	}
	if p.child != nil {
		_ = p.child.Wait() // its error is its exit status
		p.How = describe(p.child.ProcessState)
	}
	close(p.Exited)
	return nil
}

func describe(s *os.ProcessState) string {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return "it was ended by " + unix.SignalName(w.Signal())
	}
	return fmt.Sprintf("it exited with status %d", s.ExitCode())
}

// Gone reports whether the process has exited; a zombie has.
func (p *Process) Gone() bool {
	select {
	case <-p.Exited:
		return true
	default:
	}
	st, err := readStat(p.PID)
	return err != nil || st.start != p.Leader || st.state == 'Z'
}

// Stopped reports whether the process cannot answer because it is stopped.
func (p *Process) Stopped() bool {
	st, err := readStat(p.PID)
	return err == nil && st.start == p.Leader && (st.state == 'T' || st.state == 't')
}

// Signal reaches this very process or none.
func (p *Process) Signal(sig unix.Signal) error {
	conn, err := p.fd.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	err = conn.Control(func(fd uintptr) { serr = unix.PidfdSendSignal(int(fd), sig, nil, 0) })
	return errors.Join(err, serr)
}

// Group is the process group that the process leads, or was in when it was opened.
func (p *Process) Group() Group { return Group{p.PGID, p.Leader} }

// Close lets go of the process, which lives on.
func (p *Process) Close() { _ = p.fd.Close() }

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
