package pykerneltest

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
)

// Direction is a way of units over a connection.
type Direction int

// The directions.
const (
	ToKernel Direction = iota
	FromKernel
)

// ErrCut is what a cut connection gives.
var ErrCut = errors.New("cut")

// Cut says where a connection is cut: after so many whole units of one direction, and with half of the next unit let
// through or not.
type Cut struct {
	Direction Direction
	After     int
	Half      bool
}

// Cutter is a connection that ends itself at a cut.
type Cutter struct {
	net.Conn
	mu   sync.Mutex
	cut  Cut
	left int
	tail []byte // of a written unit whose rest has not come
	in   []byte // whole units that were read and not handed out
	fail error  // after in
}

// NewCutter returns conn with a cut.
func NewCutter(conn net.Conn, cut Cut) *Cutter { return &Cutter{Conn: conn, cut: cut, left: cut.After} }

// pass takes one whole unit of a direction and returns what gets through, and whether the line ends here.
func (c *Cutter) pass(d Direction, unit []byte) ([]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d != c.cut.Direction {
		return unit, c.left < 0
	}
	c.left--
	switch {
	case c.left >= 0:
		return unit, false
	case c.cut.Half:
		return unit[:len(unit)/2], true
	}
	return nil, true
}

// SyscallConn lets the link write past the cutter where only the other direction is cut.
func (c *Cutter) SyscallConn() (syscall.RawConn, error) {
	inner, ok := c.Conn.(syscall.Conn)
	if !ok || c.cut.Direction == ToKernel {
		return nil, errors.ErrUnsupported
	}
	return inner.SyscallConn()
}

// Write passes whole units on.
func (c *Cutter) Write(b []byte) (int, error) {
	c.tail = append(c.tail, b...)
	for {
		n, ok := unitSize(c.tail)
		if !ok {
			return len(b), nil
		}
		out, end := c.pass(ToKernel, c.tail[:n])
		if _, err := c.Conn.Write(out); err != nil {
			return 0, err
		}
		if end {
			c.Conn.Close()
			return 0, ErrCut
		}
		c.tail = c.tail[n:]
	}
}

// Read hands out whole units; it is used by one goroutine.
func (c *Cutter) Read(b []byte) (int, error) {
	if len(c.in) == 0 && c.fail == nil {
		unit, err := readUnit(c.Conn)
		if err != nil {
			c.fail = err
		} else if out, end := c.pass(FromKernel, unit); true {
			c.in = out
			if end {
				c.fail = ErrCut
				c.Conn.Close()
			}
		}
	}
	if len(c.in) == 0 {
		return 0, c.fail
	}
	n := copy(b, c.in)
	c.in = c.in[n:]
	return n, nil
}

func unitSize(b []byte) (n int, whole bool) {
	if len(b) < 4 {
		return 0, false
	}
	n = 4 + int(binary.BigEndian.Uint32(b))
	return n, len(b) >= n
}

// readUnit reads a whole unit. A deadline that passes between units loses nothing; one inside ends the connection.
func readUnit(r io.Reader) ([]byte, error) {
	unit := make([]byte, 4)
	if _, err := io.ReadFull(r, unit); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(unit))
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, err
	}
	return append(unit, body...), nil
}
