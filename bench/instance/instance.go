// Package instance measures the whole program from outside: the built binary, its daemon over the socket, real python
// kernels with the system's python3.
package instance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"soma/bench/measure"
	"soma/client"
	"soma/internal/config"
	"soma/wire"
)

// instance is one home with its daemon.
type instance struct {
	bin    string
	home   config.Home
	client *client.Client
	cmd    *exec.Cmd
}

// python is the interpreter that the figures are about.
const python = "/usr/bin/python3"

// build builds the program as `make build` does and returns its path.
func build(ctx context.Context, dir string) (string, error) {
	bin := filepath.Join(dir, "soma")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", bin, "soma/cmd/soma")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build: %w\n%s", err, out)
	}
	return bin, nil
}

// open makes a home and starts its daemon.
func open(ctx context.Context, bin, dir string) (*instance, error) {
	i, err := place(bin, dir)
	if err != nil {
		return nil, err
	}
	return i, i.start(ctx)
}

// place makes a client of a home whose daemon is yet to be started.
func place(bin, dir string) (*instance, error) {
	home, err := config.HomeAt(filepath.Join(dir, "home"))
	if err != nil {
		return nil, err
	}
	i := &instance{bin: bin, home: home}
	i.client, err = client.New(client.Options{
		Dial: func(ctx context.Context) (net.Conn, error) { return config.DialSocket(ctx, home.Socket()) },
		Token: func() (string, error) {
			token, err := home.ReadToken()
			return token.Reveal(), err
		},
	})
	return i, err
}

func (i *instance) command(args ...string) *exec.Cmd {
	cmd := exec.Command(i.bin, args...)
	cmd.Env = append(os.Environ(), "SOMA_HOME="+i.home.Dir())
	return cmd
}

// start starts the daemon and waits until it answers.
func (i *instance) start(ctx context.Context, args ...string) error {
	i.cmd = i.command(append([]string{"serve"}, args...)...)
	i.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	log, err := os.OpenFile(i.home.Dir()+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	i.cmd.Stdout, i.cmd.Stderr = log, log
	if err := i.cmd.Start(); err != nil {
		return err
	}
	return i.ready(ctx)
}

func (i *instance) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		_, err := i.client.Status(ctx)
		if err == nil || ctx.Err() != nil || !errors.Is(err, client.ErrLost) && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

func (i *instance) kill() {
	_ = i.cmd.Process.Kill()
	_ = i.cmd.Wait()
}

// close ends the daemon with its python kernels.
func (i *instance) close(ctx context.Context) error {
	_, err := i.client.Stop(ctx, wire.Stop{Kernels: true})
	if err != nil {
		i.kill()
		return err
	}
	return i.cmd.Wait()
}

func median[T cmp.Ordered](all []T) T {
	slices.Sort(all)
	return all[len(all)/2]
}

func millis(name string, d time.Duration, n int, fs string) measure.Line {
	return measure.Line{Name: name, Value: d.Seconds() * 1000, Unit: "ms", N: n, FS: fs}
}

// timeRuns runs a command n times and returns the median of its wall time.
func timeRuns(n int, command func() *exec.Cmd) (time.Duration, error) {
	var all []time.Duration
	for range n {
		cmd := command()
		began := time.Now()
		if out, err := cmd.CombinedOutput(); err != nil {
			return 0, fmt.Errorf("%v: %w\n%s", cmd.Args, err, out)
		}
		all = append(all, time.Since(began))
	}
	return median(all), nil
}
