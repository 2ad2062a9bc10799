package supervise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"soma/internal/config"
	"soma/internal/crash"
	"soma/internal/neuron"
	"soma/internal/osproc"
	"soma/internal/pykernel"
	"soma/internal/pykernel/frame"
	"soma/internal/pykernel/link"
)

const (
	bootWait    = 30 * time.Second // until the socket listens
	logTail     = 2000             // bytes of kernel.log in a reason (P-107)
	lockedExit  = 5                // another process holds the run directory
	lookGap     = 20 * time.Millisecond
	exitGrace   = 500 * time.Millisecond // what an exited process wrote is still read
	tries       = 40
	absentCost  = 4 // tries that a socket costs which nobody listens on: ten of them take 10 s
	tryGapMin   = 50 * time.Millisecond
	tryGapMax   = 2 * time.Second
	noPlaceWait = 30 * time.Second // for one of the MaxLive places, where no cell says how long
)

// begin brings the python kernel to the point where its process is known and listens.
func (k *kernel) begin(ctx context.Context) error {
	if !k.fresh {
		k.s.hold(k)
		k.enter(booting)
		k.listening(k.process()) // recover has found it
		return nil
	}
	if err := k.s.acquire(ctx, k); err != nil {
		return err
	}
	k.enter(booting)
	ctx, cancel := context.WithTimeoutCause(ctx, bootWait, fmt.Errorf("python did not start within %s", bootWait))
	defer cancel()
	p, err := k.boot(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	k.note(p, 1, k.s.bundle.Digest)
	k.listening(p)
	return nil
}

// listening says that frames and signals can reach the process from here on, so deadlines count.
func (k *kernel) listening(p *osproc.Process) {
	k.enter(detached)
	k.mu.Lock()
	k.proc = p
	k.startClock()
	k.mu.Unlock()
	k.publish()
}

// boot returns the process once its socket listens: one that an earlier daemon has started, or a new one. It begins again
// where another process was in the way and is gone; ctx bounds that.
func (k *kernel) boot(ctx context.Context) (*osproc.Process, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if pid, err := osproc.LockHolder(filepath.Join(k.dir, "lock")); err != nil {
		return nil, fmt.Errorf("cannot see who holds the run directory: %w", err)
	} else if pid > 0 {
		return k.adopt(ctx, pid)
	}
	if err := os.MkdirAll(k.dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the run directory: %w", err)
	}
	p, err := k.launch(ctx)
	if err != nil {
		return nil, err
	}
	switch pid, err := k.listener(ctx); {
	case err == nil && pid == p.PID:
		return p, nil
	case err == nil: // one that an earlier daemon started was faster
		return k.adopt(ctx, pid)
	}
	// Standard output ends with the process too. What it says is in the log.
	select {
	case <-p.Exited:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if p.ExitCode() == lockedExit {
		return k.boot(ctx)
	}
	text := k.logText()
	if text == "" {
		text = p.How
	}
	return nil, fmt.Errorf("python exited at startup: %s", text)
}

// launch starts python and waits until its standard output ends: it listens, or it is gone.
func (k *kernel) launch(ctx context.Context) (*osproc.Process, error) {
	log, err := os.OpenFile(filepath.Join(k.dir, "kernel.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot open the log: %w", err)
	}
	defer log.Close()
	tokenIn, tokenOut, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("cannot make a pipe: %w", err)
	}
	defer tokenIn.Close()
	// A line this short fits into the pipe; the process reads it whenever it comes to it.
	_, err = tokenOut.WriteString(k.token + "\n")
	if err = errors.Join(err, tokenOut.Close()); err != nil {
		return nil, fmt.Errorf("cannot pass the token: %w", err)
	}
	listening, stdout, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("cannot make a pipe: %w", err)
	}
	defer listening.Close()

	b, err := k.s.unpack() // it may have been removed as a cache
	if err != nil {
		return nil, err
	}
	args := []string{"-I", "-S", b.LauncherPath(), "--run", k.dir, "--bundle", b.Digest}
	if k.s.opt.OutputDir != "" {
		args = append(args, "--output", k.s.opt.OutputDir)
	}
	if len(k.s.opt.Modules) > 0 {
		args = append(args, "--modules", k.s.modules())
	}
	cmd := exec.Command(k.python, args...)
	cmd.Dir, cmd.Env = k.workspace, append(slices.Clip(k.s.opt.Env()), marker(k.id))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tokenIn, stdout, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	stdout.Close()
	if err != nil {
		return nil, fmt.Errorf("python exited at startup: %w", err)
	}
	crash.Point(crash.KernelSpawned)
	p, err := osproc.Open(cmd.Process.Pid, "")
	if err != nil {
		// It died at once, or there are no pidfds; either way nothing may be left of it.
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if text := k.logText(); errors.Is(err, osproc.ErrGone) && text != "" {
			err = errors.New(text)
		}
		return nil, fmt.Errorf("python exited at startup: %w", err)
	}
	p.Child(cmd)
	k.found(p)
	stop := context.AfterFunc(ctx, func() { _ = listening.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	_, err = io.Copy(io.Discard, listening)
	return p, err
}

// adopt waits for the socket of a process that holds the run directory already.
func (k *kernel) adopt(ctx context.Context, pid int) (*osproc.Process, error) {
	p, err := osproc.Open(pid, "")
	if errors.Is(err, osproc.ErrGone) {
		return k.boot(ctx)
	}
	if err != nil {
		return nil, err
	}
	k.found(p)
	look := time.NewTicker(lookGap)
	defer look.Stop()
	for {
		if listener, err := k.listener(ctx); err == nil && listener == pid {
			return p, nil
		}
		select {
		case <-look.C:
		case <-p.Exited:
			return k.boot(ctx)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (k *kernel) socket() string { return filepath.Join(k.dir, "kernel.sock") }

// listener returns the pid of the process that listens on the socket.
func (k *kernel) listener(ctx context.Context) (int, error) {
	conn, err := config.DialSocket(ctx, k.socket())
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *unix.Ucred
	var perr error
	err = raw.Control(func(fd uintptr) { peer, perr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(err, perr); err != nil {
		return 0, err
	}
	return int(peer.Pid), nil
}

// note queues the commit that says that the python kernel runs, and runs the sources of that digest; noted is closed after the
// first.
func (k *kernel) note(p *osproc.Process, epoch int64, digest string) {
	k.mu.Lock()
	if k.fresh {
		k.modules = k.s.modules()
	}
	modules := k.modules
	k.mu.Unlock()
	k.work.add(func(ctx context.Context) {
		ok := k.persist(ctx, "the process of a python kernel", func(ctx context.Context) error {
			return k.s.opt.Neurons.Write(ctx, k.place, &pykernel.RunKernel{
				ID: k.id, OSPID: p.PID, PGID: p.PGID, Leader: p.Leader, Bundle: digest, Modules: modules, Epoch: epoch, At: k.s.opt.Now(),
			})
		})
		select {
		case <-k.noted:
		default:
			if ok {
				close(k.noted)
			}
		}
	})
}

// stay serves connection after connection until the python kernel is proven gone or cannot be reached.
func (k *kernel) stay(ctx context.Context) error {
	left, gap := tries, tryGapMin
	p := k.process()
	for {
		served, err := k.connect(ctx, p)
		var refused *link.Refused
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case p.Gone():
			return k.death(ctx, p)
		case errors.As(err, &refused), errors.Is(err, link.ErrProtocol), errors.Is(err, errDeaf):
			return err
		case served:
			left, gap = tries, tryGapMin
		}
		k.log().Debug("no connection to a python kernel", "err", err, "tries", left)
		left--
		if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENOENT) {
			left -= absentCost - 1
		}
		if left <= 0 {
			return fmt.Errorf("it could not be reached: %w", err)
		}
		wait := time.NewTimer(gap)
		select {
		case <-wait.C:
		case <-p.Exited:
		case <-ctx.Done():
		}
		wait.Stop()
		gap = min(2*gap, tryGapMax)
	}
}

// connect runs one connection and says whether it got as far as the hello.
func (k *kernel) connect(ctx context.Context, p *osproc.Process) (served bool, err error) {
	conn, err := k.s.opt.Dial(ctx, k.socket())
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// A process may leave children behind that hold its socket: its own exit ends the connection, once what it wrote is read.
	k.spawn(ctx, "cut", func(ctx context.Context) error {
		select {
		case <-p.Exited:
		case <-ctx.Done():
			return nil
		}
		wait := time.NewTimer(exitGrace)
		defer wait.Stop()
		select {
		case <-wait.C:
		case <-ctx.Done():
		}
		cancel()
		return nil
	})
	err = k.link.Serve(ctx, conn, frame.Attach{
		Kernel: k.id, Token: k.token, Grace: k.s.opt.Grace.Seconds(), Lease: k.s.opt.Epoch(), Protocol: pykernel.Protocol,
	}, k)
	k.mu.Lock()
	served = k.phase == attached
	k.mu.Unlock()
	if served {
		k.enter(detached)
	}
	return served, err
}

// death says how the process ended.
func (k *kernel) death(ctx context.Context, p *osproc.Process) error {
	wait := time.NewTimer(time.Second) // a zombie that is about to be reaped
	defer wait.Stop()
	how := ""
	select {
	case <-p.Exited:
		how = p.How
	case <-wait.C:
	case <-ctx.Done():
	}
	return errors.New(k.deathText(how))
}

// deathText is how a process ended, with the line of its log that says why.
func (k *kernel) deathText(how string) string {
	if note := k.deathNote(); note != "" {
		how = strings.TrimPrefix(how+": "+note, ": ")
	}
	if how == "" {
		return "its process is gone"
	}
	return how
}

// deathNote is the line of kernel.log that says why, "" if there is none.
func (k *kernel) deathNote() string {
	for line := range strings.Lines(k.logText()) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "Fatal Python error") || strings.HasPrefix(line, "received SIG") {
			return line
		}
	}
	return ""
}

// logText returns the end of kernel.log, "" if there is none.
func (k *kernel) logText() string {
	f, err := os.Open(filepath.Join(k.dir, "kernel.log"))
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > logTail {
		_, _ = f.Seek(-logTail, io.SeekEnd)
	}
	text, _ := io.ReadAll(io.LimitReader(f, logTail))
	return lastBytes(strings.ToValidUTF8(string(text), "\uFFFD"))
}

func lastBytes(s string) string { return strings.TrimSpace(lastOf(s, logTail)) }

// place is where the writes of an owner's session go by default.
func place(_ neuron.ID, session string) neuron.Place { return neuron.PlaceOf(session) }
