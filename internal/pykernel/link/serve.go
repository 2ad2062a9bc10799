package link

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"soma/internal/crash"
	"soma/internal/lifecycle"
	"soma/internal/pykernel"
	"soma/internal/pykernel/frame"
)

const (
	helloLook  = 2 * time.Second // between two looks at a python kernel that owes its hello
	writeBatch = 256 << 10       // bytes that one write carries
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

	var writer lifecycle.Tasks
	err = writer.Go(ctx, "writer", func(ctx context.Context) error {
		defer conn.Close() // the reader ends with it
		return l.write(ctx, conn)
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
		return frame.Hello{}, fmt.Errorf("the python kernel speaks protocol %d, this build %d", u.Hello.Protocol, pykernel.Protocol)
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
func (l *Link) write(ctx context.Context, conn net.Conn) error {
	var buf []byte
	for {
		var frames int
		var err error
		if buf, frames, err = l.batch(buf[:0]); err != nil {
			return err
		}
		if len(buf) == 0 {
			select {
			case <-l.wake:
			case <-ctx.Done():
				return nil
			}
			continue
		}
		if _, err := conn.Write(buf); err != nil {
			return fmt.Errorf("cannot write: %w", err)
		}
		if frames > 0 {
			crash.Point(crash.FrameWritten)
		}
		if cap(buf) > 2*writeBatch {
			buf = nil
		}
	}
}

// batch appends what is due to buf: frames in order, then a ping, and the acknowledgement where no frame carried it.
func (l *Link) batch(buf []byte) (_ []byte, frames int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := l.find(l.sent + 1); i < len(l.out) && len(buf) < writeBatch; i++ {
		o := l.out[i]
		if buf, err = frame.Append(buf, frame.Sequenced(o.seq, l.settle, o.body)); err != nil {
			return nil, 0, err
		}
		o.written, o.carried = true, l.settle
		l.sent, l.told, l.again = o.seq, l.settle, false
		frames++
	}
	if l.settle > l.told || l.again {
		if buf, err = frame.Append(buf, frame.Ack(l.settle)); err != nil {
			return nil, 0, err
		}
		l.told, l.again = l.settle, false
	}
	if more := l.find(l.sent + 1); l.ping > 0 && more == len(l.out) {
		if buf, err = frame.Append(buf, frame.Ping(l.ping)); err != nil {
			return nil, 0, err
		}
		l.ping = 0
	}
	return buf, frames, nil
}
