package link

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"

	"soma/internal/config"
)

// proxy stands in for the socket of one python kernel.
type proxy struct {
	plan   *plan
	socket string // where the kernel listens now
	public string // where the daemon looks for it
	listen net.Listener
	cancel context.CancelFunc
	work   sync.WaitGroup
}

// newProxy takes the place of the socket in a kernel's run directory. The connection that stands there already goes on without it.
func newProxy(ctx context.Context, run string, p *plan) (*proxy, error) {
	x := &proxy{plan: p, socket: filepath.Join(run, "real.sock"), public: filepath.Join(run, "kernel.sock")}
	if err := os.Rename(x.public, x.socket); err != nil {
		return nil, err
	}
	var err error
	x.listen, err = config.ListenSocket(x.public)
	if err != nil {
		return nil, err
	}
	ctx, x.cancel = context.WithCancel(ctx)
	x.work.Go(func() {
		for {
			conn, err := x.listen.Accept()
			if err != nil {
				return
			}
			x.work.Go(func() { x.carry(ctx, conn) })
		}
	})
	return x, nil
}

// close ends the proxy and all its lines, and gives the kernel its place back.
func (x *proxy) close() error {
	x.cancel()
	_ = x.listen.Close()
	x.work.Wait()
	return os.Rename(x.socket, x.public)
}

// carry joins a connection of the daemon with one to the kernel until it is cut, or one side ends it.
func (x *proxy) carry(ctx context.Context, daemon net.Conn) {
	defer daemon.Close()
	kernel, err := config.DialSocket(ctx, x.socket)
	if err != nil {
		return
	}
	defer kernel.Close()
	at := x.plan.take()
	over := make(chan struct{}, ways)
	line := func(w way, from, to net.Conn) {
		n := pass(from, to, w, at)
		if n >= 0 {
			x.plan.hit(at, n)
		}
		over <- struct{}{}
	}
	x.work.Go(func() { line(toKernel, daemon, kernel) })
	x.work.Go(func() { line(fromKernel, kernel, daemon) })
	select {
	case <-over:
	case <-ctx.Done():
	}
	// Both ends go at once, whatever is still on its way: that is what a cut is.
}

// pass hands units on until the stream ends or the cut comes; it then returns the size of the unit that was cut, else -1.
func pass(from io.Reader, to io.Writer, w way, at cut) int {
	for i := 0; ; i++ {
		unit := make([]byte, 4)
		if _, err := io.ReadFull(from, unit); err != nil {
			return -1
		}
		size := int(binary.BigEndian.Uint32(unit))
		unit = append(unit, make([]byte, size)...)
		if _, err := io.ReadFull(from, unit[4:]); err != nil {
			return -1
		}
		if w == at.way && i == at.unit {
			_, err := to.Write(unit[:min(at.byte, len(unit))])
			if err != nil && !errors.Is(err, net.ErrClosed) {
				return -1
			}
			return len(unit)
		}
		if _, err := to.Write(unit); err != nil {
			return -1
		}
	}
}
