// Package kernels measures python kernels at their line, without a daemon and its commits.
package kernels

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"soma/bench/measure"
	"soma/internal/config"
	"soma/internal/pykernel"
	"soma/internal/pykernel/bundle"
	"soma/internal/pykernel/frame"
	"soma/internal/pykernel/link"
)

const (
	python = "python3"
	token  = "5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f"
	warmUp = 200
	rounds = 2000
)

//go:embed bare.py
var bare string

// Link returns cell_link_p50: a cell `1+1` from the frame that asks for it to the frame with its result, over the real link
// to a real kernel. In turns with it the smallest kernel of the same shape (reader thread, loop, compile, eval) does the same.
func Link(ctx context.Context, dir, fs string) (line measure.Line, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	k, err := start(ctx, dir)
	if err != nil {
		return line, err
	}
	defer func() { err = errors.Join(err, k.end()) }()
	b, err := startBare(ctx, dir)
	if err != nil {
		return line, err
	}
	defer func() { err = errors.Join(err, b.end()) }()
	var ours, theirs []time.Duration
	for i := range warmUp + rounds {
		mine, err := k.round(ctx, i)
		if err != nil {
			return line, err
		}
		other, err := b.round(i)
		if err != nil {
			return line, err
		}
		if i >= warmUp {
			ours, theirs = append(ours, mine), append(theirs, other)
		}
	}
	return measure.Line{Name: "cell_link_p50", Value: micros(ours), Unit: "us", Bare: micros(theirs), N: rounds, FS: fs}, nil
}

func micros(all []time.Duration) float64 {
	slices.Sort(all)
	return float64(all[len(all)/2].Nanoseconds()) / 1e3
}

// kernel is one python kernel with its link.
type kernel struct {
	cmd    *exec.Cmd
	link   *link.Link
	seq    uint64
	ready  chan struct{}
	done   chan *frame.Frame
	served chan error
	stop   context.CancelFunc
}

func start(ctx context.Context, dir string) (*kernel, error) {
	b, err := bundle.Unpack(filepath.Join(dir, "bundle"))
	if err != nil {
		return nil, err
	}
	run := filepath.Join(dir, "kernel")
	if err := os.Mkdir(run, 0o700); err != nil {
		return nil, err
	}
	cmd, err := launch(ctx, token+"\n", "-I", "-S", b.LauncherPath(), "--run", run, "--bundle", b.Digest)
	if err != nil {
		return nil, err
	}
	conn, err := config.DialSocket(ctx, filepath.Join(run, "kernel.sock"))
	if err != nil {
		return nil, errors.Join(err, cmd.Process.Kill())
	}
	ctx, stop := context.WithCancel(ctx)
	k := &kernel{cmd: cmd, link: link.New(), ready: make(chan struct{}), done: make(chan *frame.Frame, 1), served: make(chan error, 1), stop: stop}
	go func() {
		k.served <- k.link.Serve(ctx, conn, frame.Attach{Kernel: "kernel", Token: token, Grace: 60, Lease: 1, Protocol: pykernel.Protocol}, k)
	}()
	select {
	case <-k.ready:
		return k, nil
	case err := <-k.served:
		return nil, err
	}
}

// launch starts python in a session of its own and returns when it has closed its output: it listens then.
func launch(ctx context.Context, input string, args ...string) (*exec.Cmd, error) {
	cmd := exec.CommandContext(ctx, python, args...)
	cmd.Stdin = strings.NewReader(input)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	_, err = io.Copy(io.Discard, out)
	return cmd, err
}

// round runs one cell.
func (k *kernel) round(ctx context.Context, i int) (time.Duration, error) {
	body, err := json.Marshal(pykernel.Execute{Type: pykernel.FrameExecute, Cell: fmt.Sprint("c", i), Code: "1+1", TimeoutMS: 60_000})
	if err != nil {
		return 0, err
	}
	began := time.Now()
	k.seq++
	k.link.Append(k.seq, body, false)
	select {
	case f := <-k.done:
		took := time.Since(began)
		if v := f.Done.Value; v == nil || *v != "2" {
			return 0, fmt.Errorf("1+1 ended as %+v", f.Done)
		}
		return took, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (k *kernel) end() error {
	k.stop()
	<-k.served
	return errors.Join(k.cmd.Process.Kill(), ignoreExit(k.cmd.Wait()))
}

func ignoreExit(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil
	}
	return err
}

// The methods of link.Handler.

func (k *kernel) Waiting() error                           { return nil }
func (k *kernel) Hello(context.Context, frame.Hello) error { return nil }
func (k *kernel) Acked([]uint64)                           {}
func (k *kernel) Evidence(uint64)                          {}
func (k *kernel) Output(string, int64, string)             {}
func (k *kernel) Pong(uint64)                              {}

func (k *kernel) Frame(seq uint64, f *frame.Frame) {
	k.link.Settle(seq)
	switch f.Type {
	case pykernel.FrameReady:
		close(k.ready)
	case pykernel.FrameDone:
		k.done <- f
	}
}

// bareKernel is the smallest kernel, and a connection to it.
type bareKernel struct {
	cmd  *exec.Cmd
	conn net.Conn
}

func startBare(ctx context.Context, dir string) (*bareKernel, error) {
	socket := filepath.Join(dir, "bare.sock")
	cmd, err := launch(ctx, "", "-I", "-S", "-c", bare, socket)
	if err != nil {
		return nil, err
	}
	conn, err := config.DialSocket(ctx, socket)
	if err != nil {
		return nil, errors.Join(err, cmd.Process.Kill())
	}
	return &bareKernel{cmd: cmd, conn: conn}, nil
}

func (b *bareKernel) round(i int) (time.Duration, error) {
	body, err := json.Marshal(map[string]any{"execute": "1+1", "id": i})
	if err != nil {
		return 0, err
	}
	began := time.Now()
	unit, err := frame.Append(nil, body)
	if err != nil {
		return 0, err
	}
	if _, err := b.conn.Write(unit); err != nil {
		return 0, err
	}
	answer, err := frame.Read(b.conn)
	if err != nil {
		return 0, err
	}
	var done struct {
		ID   int
		Done string
	}
	if err := json.Unmarshal(answer, &done); err != nil || done.Done != "2" || done.ID != i {
		return 0, fmt.Errorf("1+1 is answered %s: %w", answer, err)
	}
	return time.Since(began), nil
}

func (b *bareKernel) end() error {
	return errors.Join(b.conn.Close(), ignoreExit(b.cmd.Wait()))
}
