package link

import (
	"fmt"
	"net"
	"sync"
	"syscall"

	"soma/internal/crash"
	"soma/internal/pykernel/frame"
)

// writeBatch is how many bytes one write carries, but for its last unit.
const writeBatch = 256 << 10

// line is the writing half of one connection. Two may write: the connection's own goroutine, which may block, and whoever
// appends a frame, who may not: it writes only what the system takes at once and leaves the rest. That saves a cell the
// way through another goroutine.
type line struct {
	conn net.Conn
	raw  syscall.RawConn // nil where the connection is not the system's
	mu   sync.Mutex      // held while writing
	buf  []byte
	rest []byte // what the system did not take
}

func newLine(conn net.Conn) *line {
	w := &line{conn: conn}
	if c, ok := conn.(syscall.Conn); ok {
		w.raw, _ = c.SyscallConn()
	}
	return w
}

// try writes without blocking and returns how much was taken. An error shows again when the rest is written.
func (w *line) try(b []byte) int {
	taken := 0
	_ = w.raw.Write(func(fd uintptr) bool {
		if n, err := syscall.Write(int(fd), b); err == nil {
			taken = n
		}
		return true
	})
	return taken
}

// left says what a flush leaves to do.
type left uint8

const (
	nothing left = iota
	owed         // an acknowledgement waits for a frame to carry it
	more         // there may be more to write
)

// flush writes what is due; the connection's own goroutine calls it.
func (l *Link) flush(w *line, overdue bool) (left, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.rest) > 0 {
		if _, err := w.conn.Write(w.rest); err != nil {
			return nothing, fmt.Errorf("cannot write: %w", err)
		}
		w.rest = nil
	}
	b, err := l.batch(w.buf[:0], overdue)
	switch {
	case err != nil:
		return nothing, err
	case len(b.units) == 0:
		return b.left, nil
	}
	if _, err := w.conn.Write(b.units); err != nil {
		return nothing, fmt.Errorf("cannot write: %w", err)
	}
	if b.frames > 0 {
		crash.Point(crash.FrameWritten)
	}
	w.keep(b.units)
	return more, nil
}

// push writes what is due as far as that does not block, and leaves the rest to the connection's own goroutine.
func (l *Link) push() {
	l.mu.Lock()
	w := l.line
	l.mu.Unlock()
	if w == nil || w.raw == nil || !w.mu.TryLock() {
		l.rouse()
		return
	}
	defer w.mu.Unlock()
	if len(w.rest) > 0 {
		l.rouse()
		return
	}
	b, err := l.batch(w.buf[:0], false)
	if err != nil || len(b.units) == 0 {
		l.rouse() // the error shows again there
		return
	}
	if n := w.try(b.units); n < len(b.units) {
		w.rest, w.buf = b.units[n:], nil
		l.rouse()
		return
	}
	if b.frames > 0 {
		crash.Point(crash.FrameWritten)
	}
	w.keep(b.units)
	if b.left == more {
		l.rouse()
	}
}

// keep keeps a buffer for the next write unless it is large.
func (w *line) keep(b []byte) {
	if w.buf = b; cap(b) > 2*writeBatch {
		w.buf = nil
	}
}

func (l *Link) use(w *line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.line = w
}

// batch is what one write carries.
type batch struct {
	units  []byte
	frames int
	left   left
}

// batch appends what is due to buf: frames in order, an acknowledgement that none of them carries and that is overdue or
// repeats an earlier one, and a ping.
func (l *Link) batch(buf []byte, overdue bool) (b batch, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b.units = buf
	i := l.find(l.sent + 1)
	for ; i < len(l.out) && len(b.units) < writeBatch; i++ {
		o := l.out[i]
		if b.units, err = frame.Append(b.units, frame.Sequenced(o.seq, l.settle, o.body)); err != nil {
			return b, err
		}
		o.written, o.carried = true, l.settle
		l.sent, l.told, l.again = o.seq, l.settle, false
		b.frames++
	}
	if l.again || overdue && l.settle > l.told {
		if b.units, err = frame.Append(b.units, frame.Ack(l.settle)); err != nil {
			return b, err
		}
		l.told, l.again = l.settle, false
	}
	if l.settle > l.told {
		b.left = owed
	}
	if i < len(l.out) {
		b.left = more
		return b, nil
	}
	if l.ping > 0 {
		if b.units, err = frame.Append(b.units, frame.Ping(l.ping)); err != nil {
			return b, err
		}
		l.ping = 0
	}
	return b, nil
}
