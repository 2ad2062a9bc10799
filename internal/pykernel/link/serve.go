package link

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"soma/internal/lifecycle"
	"soma/internal/pykernel"
	"soma/internal/pykernel/frame"
)

const (
	helloLook = 2 * time.Second // between two looks at a python kernel that owes its hello
	// ackWait is how long an acknowledgement waits for a frame that carries it: the next cell often comes at once, and a
	// unit of its own would only wake the python kernel twice.
	ackWait = 20 * time.Millisecond
)

// Serve attaches over conn and carries frames both ways until the connection ends, which it closes. It returns why: a
// *Refused, an error of the handler, of the connection, or of ctx.
func (l *Link) Serve(ctx context.Context, conn net.Conn, attach frame.Attach, h Handler) error {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	err := l.serve(ctx, conn, attach, h)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func (l *Link) serve(ctx context.Context, conn net.Conn, attach frame.Attach, h Handler) error {
	attach.Ack = l.Ack()
	object, err := attach.Encode()
	if err != nil {
		return err
	}
	unit, err := frame.Append(nil, object)
	if err != nil {
		return err
	}
	if _, err := conn.Write(unit); err != nil {
		return fmt.Errorf("cannot attach: %w", err)
	}
	r := bufio.NewReaderSize(conn, 64<<10)
	hello, err := l.hello(conn, r, h)
	if err != nil {
		return err
	}
	if err := l.confirmed(hello.Ack, h); err != nil {
		return err
	}
	l.mu.Lock()
	l.sent, l.told, l.again, l.ping = hello.Ack, attach.Ack, false, 0
	proven := l.prove(attach.Ack)
	l.mu.Unlock()
	if proven > 0 {
		h.Evidence(proven)
	}
	if err := h.Hello(ctx, hello); err != nil {
		return err
	}

	w := newLine(conn)
	l.use(w)
	defer l.use(nil)
	var writer lifecycle.Tasks
	err = writer.Go(ctx, "writer", func(ctx context.Context) error {
		defer conn.Close() // the reader ends with it
		return l.write(ctx, w)
	})
	if err != nil {
		return err
	}
	err = l.read(r, h)
	conn.Close()
	// The writer's own error only repeats that the connection broke; it ends at once.
	_ = writer.Stop(context.WithoutCancel(ctx))
	return err
}

// hello waits for the first unit.
func (l *Link) hello(conn net.Conn, r *bufio.Reader, h Handler) (frame.Hello, error) {
	for {
		if err := conn.SetReadDeadline(time.Now().Add(helloLook)); err != nil {
			return frame.Hello{}, err
		}
		_, err := r.Peek(1)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if err := h.Waiting(); err != nil {
				return frame.Hello{}, err
			}
			continue
		}
		if err != nil {
			return frame.Hello{}, fmt.Errorf("no hello: %w", err)
		}
		break
	}
	if err := conn.SetReadDeadline(time.Now().Add(helloLook)); err != nil {
		return frame.Hello{}, err
	}
	object, err := frame.Read(r)
	if err != nil {
		return frame.Hello{}, fmt.Errorf("no hello: %w", err)
	}
	u, err := frame.Parse(object)
	switch {
	case err != nil:
		return frame.Hello{}, err
	case u.Refused != nil:
		return frame.Hello{}, &Refused{*u.Refused}
	case u.Hello == nil:
		return frame.Hello{}, fmt.Errorf("%w: the first unit is no hello", frame.ErrMalformed)
	case u.Hello.Protocol != pykernel.Protocol:
		return frame.Hello{}, fmt.Errorf("%w: %d, this build speaks %d", ErrProtocol, u.Hello.Protocol, pykernel.Protocol)
	}
	return *u.Hello, conn.SetReadDeadline(time.Time{})
}

func (l *Link) confirmed(ack uint64, h Handler) error {
	seqs, evidence, err := l.confirm(ack)
	if err != nil {
		return err
	}
	if len(seqs) > 0 {
		h.Acked(seqs)
	}
	if evidence > 0 {
		h.Evidence(evidence)
	}
	return nil
}

func (l *Link) read(r *bufio.Reader, h Handler) error {
	for {
		object, err := frame.Read(r)
		if err != nil {
			return err
		}
		u, err := frame.Parse(object)
		if err != nil {
			return err
		}
		if u.Ack != nil {
			if err := l.confirmed(*u.Ack, h); err != nil {
				return err
			}
		}
		switch {
		case u.Frame != nil:
			fresh, err := l.receive(*u.Seq, len(object))
			if err != nil {
				return err
			}
			if fresh {
				h.Frame(*u.Seq, u.Frame)
			}
		case u.Output != nil:
			h.Output(*u.Output.Cell, *u.Output.Offset, *u.Output.Text)
		case u.Pong != nil:
			h.Pong(uint64(*u.Pong))
		case u.Hello != nil, u.Refused != nil:
			return fmt.Errorf("%w: a second hello", frame.ErrMalformed)
		}
	}
}

// write sends what there is until ctx ends or the connection breaks.
func (l *Link) write(ctx context.Context, w *line) error {
	var late <-chan time.Time // for an acknowledgement that waits
	timer := time.NewTimer(ackWait)
	timer.Stop()
	defer timer.Stop()
	for overdue := false; ; {
		left, err := l.flush(w, overdue)
		if err != nil {
			return err
		}
		overdue = false
		if left == more {
			continue
		}
		if left == owed && late == nil {
			timer.Reset(ackWait)
			late = timer.C
		}
		select {
		case <-l.wake:
		case <-late:
			overdue, late = true, nil
		case <-ctx.Done():
			return nil
		}
	}
}
