package chaos

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"soma/client"
	"soma/internal/config"
	"soma/wire"
)

// Daemon is a child that is killed and started again, with clients to it. Its methods are safe for concurrent use.
type Daemon struct {
	program string
	home    config.Home
	env     []string
	relay   *relay // nil: the client is connected straight to it
	// Client goes the way that is cut; straight does not.
	Client, straight *client.Client

	mu     sync.Mutex
	cmd    *exec.Cmd
	exited chan struct{} // closed when cmd has ended
	deaths int           // so far, by our hand
	waits  sync.WaitGroup
}

// settings are what a daemon is started with.
type settings struct {
	python  string
	environ []string // of which that is left out which would lead it to anything of the person's
	own     []string // variables besides the home
	cut     bool     // its client's connections can be cut
}

// Start makes a home at dir and starts a daemon on it, in an environment as of os.Environ and with variables of its own.
func Start(program, dir string, environ, own []string) (*Daemon, error) {
	return start(program, dir, settings{environ: environ, own: own})
}

func start(program, dir string, s settings) (*Daemon, error) {
	home, err := config.HomeAt(dir)
	if err != nil {
		return nil, err
	}
	if err := home.Create(); err != nil {
		return nil, err
	}
	// A python kernel that nobody ends, because this program was killed, ends by itself soon.
	text := "kernel_grace_seconds: 120\n"
	if s.python != "" {
		text += "python: " + strconv.Quote(s.python) + "\n"
	}
	if err := os.WriteFile(home.ConfigFile(), []byte(text), 0o600); err != nil {
		return nil, err
	}
	d := &Daemon{program: program, home: home, env: append(append(cleaned(s.environ), s.own...), "SOMA_HOME="+home.Dir())}
	if err := d.start(); err != nil {
		return nil, err
	}
	dial := func(ctx context.Context) (net.Conn, error) { return config.DialSocket(ctx, home.Socket()) }
	if d.straight, err = d.connect(dial); err != nil {
		return nil, errors.Join(err, d.kill())
	}
	d.Client = d.straight
	if s.cut {
		d.relay = newRelay(dial)
		if d.Client, err = d.connect(d.relay.dial); err != nil {
			return nil, errors.Join(err, d.kill())
		}
	}
	return d, nil
}

func (d *Daemon) connect(dial func(context.Context) (net.Conn, error)) (*client.Client, error) {
	return client.New(client.Options{
		Dial: dial,
		Token: func() (string, error) {
			token, err := d.home.ReadToken()
			return token.Reveal(), err
		},
	})
}

// cleaned leaves out what would lead a daemon to anything of the person's.
func cleaned(environ []string) []string {
	var env []string
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "SOMA_") || strings.HasPrefix(name, "OPENAI_") || strings.HasPrefix(name, "OTEL_") || name == "OLLAMA_HOST" {
			continue
		}
		env = append(env, entry)
	}
	return env
}

func (d *Daemon) log() string { return d.home.Dir() + ".log" }

func (d *Daemon) start() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.startLocked()
}

func (d *Daemon) startLocked() error {
	cmd := exec.Command(d.program, "serve")
	cmd.Env = d.env
	cmd.Dir = d.home.Dir()
	// Nobody else would end a daemon whose chaos was killed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	log, err := os.OpenFile(d.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot start the daemon: %w", err)
	}
	exited := make(chan struct{})
	d.cmd, d.exited = cmd, exited
	d.waits.Go(func() {
		_ = cmd.Wait() // its state is asked for
		close(exited)
	})
	return nil
}

// Kill ends the daemon at once; one that has ended already is no error.
func (d *Daemon) Kill() { _ = d.kill() }

func (d *Daemon) kill() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.killLocked()
	return nil
}

func (d *Daemon) killLocked() {
	d.deaths++
	_ = d.cmd.Process.Kill() // one that has ended is as good
	<-d.exited
}

// again kills the daemon and starts the next, and returns its number.
func (d *Daemon) again() (life int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.killLocked()
	return d.deaths, d.startLocked()
}

func (d *Daemon) life() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.deaths
}

// now returns the number of the daemon that runs, and what is closed at its end.
func (d *Daemon) now() (life int, exited <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.deaths, d.exited
}

// startedAgain starts the daemon of a life again that has ended by itself, and says how it ended; ok is false if it was killed.
func (d *Daemon) startedAgain(life int) (how *os.ProcessState, ok bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.deaths != life {
		return nil, false, nil
	}
	how = d.cmd.ProcessState
	return how, true, d.startLocked()
}

// signal sends a signal to the daemon that runs now.
func (d *Daemon) signal(sig syscall.Signal) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cmd.Process.Signal(sig)
}

// lookTime bounds the question for python kernels.
const lookTime = 2 * time.Second

// signalKernel sends a signal to one of the python kernels that the daemon knows; it returns its pid, 0 for none.
func (d *Daemon) signalKernel(ctx context.Context, r *rand.Rand, sig syscall.Signal) (pid int) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	st, err := d.straight.Status(ctx)
	if err != nil {
		return 0
	}
	var pids []int
	for _, k := range st.Kernels {
		if k.PID > 0 {
			pids = append(pids, k.PID)
		}
	}
	if len(pids) == 0 {
		return 0
	}
	if pid = pids[r.IntN(len(pids))]; syscall.Kill(pid, sig) != nil {
		return 0
	}
	return pid
}

// answers waits until the daemon of a life answers; it reports whether that one did.
func (d *Daemon) answers(ctx context.Context, life int) bool {
	look := time.NewTicker(lookGap)
	defer look.Stop()
	for d.life() == life {
		limited, cancel := context.WithTimeout(ctx, lookTime)
		err := d.straight.Health(limited)
		cancel()
		if err == nil {
			return d.life() == life
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return false
		}
	}
	return false
}

// stopTime bounds an orderly stop with all python kernels.
const stopTime = time.Minute

// Stop ends the daemon with its python kernels, in order, and returns what OS processes of its home are left.
func (d *Daemon) Stop(ctx context.Context) ([]string, error) {
	err := Again(ctx, stopTime, func(ctx context.Context) error {
		_, err := d.straight.Stop(ctx, wire.Stop{Kernels: true})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot stop the daemon: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.exited:
	case <-time.After(stopTime):
		_ = d.cmd.Process.Kill()
		<-d.exited
		return nil, errors.New("the daemon does not end")
	}
	if !d.cmd.ProcessState.Success() {
		return nil, fmt.Errorf("the daemon did not stop well: %v", d.cmd.ProcessState)
	}
	return processesOf(d.home.Dir())
}

// close lets the clients of a killed or stopped daemon go.
func (d *Daemon) close() {
	d.waits.Wait()
	d.straight.Close()
	d.Client.Close()
	if d.relay != nil {
		d.relay.close()
	}
}

// processesOf finds the OS processes that name a folder in their command line or environment.
func processesOf(dir string) ([]string, error) {
	entries, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	var found []string
	for _, entry := range entries {
		if filepath.Base(entry) == strconv.Itoa(os.Getpid()) {
			continue
		}
		// What cannot be read any more is gone.
		line, _ := os.ReadFile(filepath.Join(entry, "cmdline"))
		env, _ := os.ReadFile(filepath.Join(entry, "environ"))
		if strings.Contains(string(line), dir) || strings.Contains(string(env), dir) {
			found = append(found, filepath.Base(entry)+" "+strings.ReplaceAll(strings.TrimRight(string(line), "\x00"), "\x00", " "))
		}
	}
	return found, nil
}

// lookGap is the time between two tries.
const lookGap = 20 * time.Millisecond

// Again calls fn until it answers something else than that the daemon is not there for now, for at most atMost.
func Again(ctx context.Context, atMost time.Duration, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	for {
		err := fn(ctx)
		// A request may run out of its own time while a daemon is paused.
		if !absent(err) && (ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded)) {
			return err
		}
		select {
		case <-time.After(lookGap):
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// absent reports whether an error is that of a daemon which is killed, stops, starts or is paused.
func absent(err error) bool {
	var refused *wire.Error
	if errors.As(err, &refused) {
		switch refused.Code {
		case wire.Stopping, wire.Busy, wire.Unavailable, wire.Internal:
			return true
		}
		return false
	}
	// A new home has no token until its daemon has made one.
	return errors.Is(err, client.ErrLost) || errors.Is(err, client.ErrStopped) || errors.Is(err, fs.ErrNotExist)
}
