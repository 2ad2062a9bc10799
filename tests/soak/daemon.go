package main

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

// daemon is the one that is killed and started again, with a client to it.
type daemon struct {
	bin    string
	home   config.Home
	client *client.Client
	// settings are variables of the daemon, NAME=value.
	settings []string

	mu  sync.Mutex
	cmd *exec.Cmd
}

func newDaemon(bin, dir string, settings ...string) (*daemon, error) {
	home, err := config.HomeAt(dir)
	if err != nil {
		return nil, err
	}
	d := &daemon{bin: bin, home: home, settings: settings}
	if err := d.start(); err != nil {
		return nil, err
	}
	d.client, err = client.New(client.Options{
		Dial: func(ctx context.Context) (net.Conn, error) { return config.DialSocket(ctx, home.Socket()) },
		Token: func() (string, error) {
			token, err := home.ReadToken()
			return token.Reveal(), err
		},
	})
	return d, err
}

func (d *daemon) start() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	cmd := exec.Command(d.bin, "serve")
	cmd.Env = append(append(os.Environ(), "SOMA_HOME="+d.home.Dir()), d.settings...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	log, err := os.OpenFile(d.home.Dir()+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot start the daemon: %w", err)
	}
	d.cmd = cmd
	return nil
}

func (d *daemon) kill() {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = d.cmd.Process.Kill()
	_ = d.cmd.Wait()
}

// killKernel kills one python kernel, if there is one.
func (d *daemon) killKernel(ctx context.Context, r *rand.Rand) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	st, err := d.client.Status(ctx)
	if err != nil {
		return false
	}
	var pids []int
	for _, k := range st.Kernels {
		if k.PID > 0 {
			pids = append(pids, k.PID)
		}
	}
	return len(pids) > 0 && syscall.Kill(pids[r.IntN(len(pids))], syscall.SIGKILL) == nil
}

// stop ends the daemon with its python kernels and returns the pids of processes of the home that are left.
func (d *daemon) stop(ctx context.Context) ([]int, error) {
	err := again(ctx, time.Minute, func(ctx context.Context) error {
		_, err := d.client.Stop(ctx, wire.Stop{Kernels: true})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot stop the daemon: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.cmd.Wait(); err != nil {
		return nil, fmt.Errorf("the daemon did not stop well: %w", err)
	}
	return d.left()
}

func (d *daemon) left() ([]int, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() {
			continue
		}
		for _, file := range []string{"environ", "cmdline"} {
			b, _ := os.ReadFile(filepath.Join(dir, file))
			if strings.Contains(string(b), d.home.Dir()) {
				pids = append(pids, pid)
				break
			}
		}
	}
	return pids, nil
}

// again calls fn until it answers something else than that the daemon is not there, for at most atMost.
func again(ctx context.Context, atMost time.Duration, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	for {
		err := fn(ctx)
		var refused *wire.Error
		// A new home has no token until its daemon has made one.
		retry := errors.Is(err, client.ErrLost) || errors.Is(err, fs.ErrNotExist) || errors.As(err, &refused) && (refused.Code == wire.Stopping || refused.Code == wire.Busy || refused.Code == wire.Internal)
		if !retry {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}
