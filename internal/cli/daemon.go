package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"soma/client"
	"soma/internal/cli/exit"
	"soma/internal/config"
	"soma/internal/daemonlog"
	"soma/internal/pykernel"
	"soma/wire"
)

const (
	// healthWait bounds the question whether a daemon answers; bootWait a start with its recovery, stopWait the end of one
	// that is stopping.
	healthWait = 5 * time.Second
	bootWait   = 60 * time.Second
	stopWait   = 30 * time.Second
	// poll is how often a start is looked at; lostWait is the pause before a lost daemon is started again.
	poll     = 10 * time.Millisecond
	lostWait = 2 * time.Second
	// A daemon that was started maxStarts times within startsWithin is not started again.
	maxStarts    = 3
	startsWithin = time.Minute
)

// starts are the times of the daemon's starts by this client, at most maxStarts, and the last one's pid.
type starts struct {
	times []time.Time
	pid   int
}

// allowed reports whether the daemon may be started once more.
func (s *starts) allowed(now time.Time) bool {
	return len(s.times) < maxStarts || now.Sub(s.times[len(s.times)-maxStarts]) > startsWithin
}

func (s *starts) add(now time.Time, pid int) {
	s.times = append(s.times, now)
	s.times = s.times[max(0, len(s.times)-maxStarts):]
	s.pid = pid
}

// reap takes notice of the end of a daemon that this client has started, so that it does not stay as a zombie.
func (s *starts) reap() (ended bool, code int) {
	if s.pid == 0 {
		return false, 0
	}
	var status unix.WaitStatus
	pid, err := unix.Wait4(s.pid, &status, unix.WNOHANG, nil)
	if pid != s.pid && !errors.Is(err, unix.ECHILD) {
		return false, 0
	}
	s.pid = 0
	if status.Signaled() {
		return true, 128 + int(status.Signal())
	}
	return true, status.ExitStatus()
}

func dialer(home config.Home) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) { return config.DialSocket(ctx, home.Socket()) }
}

// health asks whether the daemon answers; while it is stopping it waits for its end.
func (a *app) health(ctx context.Context) error {
	deadline := time.Now().Add(stopWait)
	for {
		limited, cancel := context.WithTimeout(ctx, a.healthWait)
		err := a.client.Health(limited)
		cancel()
		var e *wire.Error
		if !errors.As(err, &e) || e.Code != wire.Stopping && e.Code != wire.Unavailable || time.Now().After(deadline) {
			return err
		}
		if err := pause(ctx, 10*poll); err != nil {
			return err
		}
	}
}

// ensure starts a daemon if none answers.
func (a *app) ensure(ctx context.Context) error {
	err := a.health(ctx)
	if !errors.Is(err, client.ErrLost) {
		return err
	}
	if a.terse { // there was one
		return a.regain(ctx)
	}
	a.regaining.Lock()
	defer a.regaining.Unlock()
	if err := a.health(ctx); !errors.Is(err, client.ErrLost) { // another goroutine was quicker
		return err
	}
	return a.start(ctx)
}

// start runs the daemon in the background and waits until it answers.
func (a *app) start(ctx context.Context) error {
	a.starts.reap()
	if !a.starts.allowed(time.Now()) {
		return exit.Faultf(exit.NoDaemon, "see soma logs --daemon", "cannot keep a daemon: it was started %d times within a minute, and its log ends: %s",
			maxStarts, lastLine(a.home.DaemonLog()))
	}
	if err := a.home.Create(); err != nil {
		return err
	}
	pid, err := a.spawn()
	var home *config.HomeError
	switch {
	case errors.As(err, &home):
		return err
	case err != nil:
		return exit.Faultf(exit.NoDaemon, "", "cannot start the daemon: %w", err)
	}
	a.starts.add(time.Now(), pid)
	deadline := time.Now().Add(bootWait)
	ours, turnedAway := true, 0
	for {
		err := a.health(ctx)
		if err == nil && ours && !a.terse {
			a.say("started the daemon (pid %d, log %s)", pid, a.home.DaemonLog())
		}
		if !errors.Is(err, client.ErrLost) {
			return err
		}
		if ended, code := a.starts.reap(); ended {
			if code != exit.Home { // with exit.Home another one may hold the home
				return startFailed(code, lastLine(a.home.DaemonLog()))
			}
			ours = false
			turnedAway++
		}
		// One that is starting is waited for. One that was stopping leaves the home free, without a daemon.
		if !ours && a.home.Holder() == nil {
			if turnedAway == maxStarts {
				return startFailed(exit.Home, lastLine(a.home.DaemonLog()))
			}
			if pid, err = a.spawn(); err != nil {
				return exit.Faultf(exit.NoDaemon, "", "cannot start the daemon: %w", err)
			}
			ours, a.starts.pid = true, pid
		}
		if time.Now().After(deadline) {
			if holder := a.home.Holder(); holder != nil && !ours {
				return mute(holder, "start the daemon")
			}
			return exit.Faultf(exit.NoDaemon, "see soma logs --daemon", "cannot start the daemon: it does not answer after %s", bootWait)
		}
		if err := pause(ctx, poll); err != nil {
			return err
		}
	}
}

func startFailed(code int, last string) error {
	if code < exit.Usage || code > exit.Config {
		code = exit.NoDaemon
	}
	if words, ok := strings.CutPrefix(last, "soma: "); ok {
		return exit.Faultf(code, "", "cannot start the daemon: %s", words)
	}
	if code == exit.Home { // its line did not even reach the log
		return exit.Faultf(code, "run soma serve to see why", "cannot start the daemon: it cannot use its home")
	}
	return exit.Faultf(code, "see soma logs --daemon", "cannot start the daemon: it ended, and its log ends: %s", last)
}

// spawn starts this program as a daemon: in a session of its own, tied to no terminal.
func (a *app) spawn() (pid int, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	log, err := daemonlog.Append(a.home.DaemonLog())
	if err != nil {
		return 0, &config.HomeError{Home: a.home.Dir(), Err: err}
	}
	defer log.Close()
	cmd := exec.Command(self, "serve", "--background")
	cmd.Dir = a.home.Dir()
	// A daemon that a cell's command starts is no process of that cell's kernel: it lives on.
	cmd.Env = append(os.Environ(), "SOMA_HOME="+a.home.Dir(), pykernel.Mark+"=")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	pid = cmd.Process.Pid
	return pid, cmd.Process.Release()
}

// regain gets a daemon again after it was lost.
func (a *app) regain(ctx context.Context) error {
	a.regaining.Lock()
	defer a.regaining.Unlock()
	a.starts.reap()
	err := a.health(ctx)
	// One that is there and silent is paused, or ends a life whose database is silent: it is waited for like one that says so.
	for deadline := time.Now().Add(stopWait); errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil && time.Now().Before(deadline); {
		err = a.health(ctx)
	}
	if err == nil { // only the connection broke, or another client was quicker
		return pause(ctx, 20*poll)
	}
	if !errors.Is(err, client.ErrLost) {
		return err
	}
	a.say("the daemon is gone; it is started again in %s", a.lostWait)
	if err := pause(ctx, a.lostWait); err != nil {
		return err
	}
	if err := a.health(ctx); !errors.Is(err, client.ErrLost) {
		return err
	}
	return a.start(ctx)
}

// keep makes a request that may be repeated until a daemon has answered it.
func (a *app) keep(ctx context.Context, request func() error) error {
	for {
		err := request()
		if !errors.Is(err, client.ErrLost) {
			return err
		}
		if err := a.regain(ctx); err != nil {
			return err
		}
	}
}

// follow follows a session from a cursor through the death of daemons and new tokens, until fn ends it.
func (a *app) follow(ctx context.Context, session string, from wire.Cursor, fn func(client.Frame) error) error {
	return a.keep(ctx, func() error {
		for {
			old, _ := a.home.ReadToken() // the client meets the same error
			at, err := a.client.Follow(ctx, session, from, fn)
			from = at
			var refusal *wire.Error
			if !errors.As(err, &refusal) || refusal.Code != wire.Unauthorized {
				return err
			}
			if fresh, tokenErr := a.home.ReadToken(); tokenErr != nil || fresh == old {
				return err
			}
		}
	})
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lastLine is the last line of a file, at most 500 bytes of it.
func lastLine(name string) string {
	text, err := tail(name, 4096)
	if err != nil {
		return fmt.Sprintf("(%v)", err)
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	last := lines[len(lines)-1]
	return strings.ToValidUTF8(last[:min(len(last), 500)], "")
}

// tail returns the last n bytes of a file.
func tail(name string, n int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	from := max(0, info.Size()-n)
	return io.ReadAll(io.NewSectionReader(f, from, n))
}
