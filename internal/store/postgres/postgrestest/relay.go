package postgrestest

import (
	"fmt"
	"net"
	"sync"
	"testing"
)

// Relay passes bytes between clients and a server on a loopback port of its own, and cuts connections where it is told to.
type Relay struct {
	listener net.Listener
	to       string
	wg       sync.WaitGroup

	mu    sync.Mutex
	cut   func(text string, answer bool) bool
	open  map[net.Conn]struct{}
	ended bool
}

// StartRelay starts a relay to the server; it ends with the test.
func StartRelay(t testing.TB, s *Server) *Relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &Relay{listener: l, to: s.Address(), open: map[net.Conn]struct{}{}}
	r.wg.Go(r.accept)
	t.Cleanup(r.end)
	return r
}

// DSN returns how a database is reached through the relay.
func (r *Relay) DSN(database string) string {
	a := r.listener.Addr().(*net.TCPAddr)
	return fmt.Sprintf("host=%s port=%d user=postgres dbname=%s sslmode=disable", a.IP, a.Port, database)
}

// Cut sets what is asked about all bytes before they go on, in the order in which they come: yes cuts their connection. nil:
// everything passes. answer says that they come from the server.
func (r *Relay) Cut(cut func(text string, answer bool) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = cut
}

func (r *Relay) accept() {
	for {
		down, err := r.listener.Accept()
		if err != nil {
			return
		}
		up, err := net.Dial("tcp", r.to)
		if err != nil {
			_ = down.Close()
			continue
		}
		r.wg.Go(func() { r.pass(down, up, false) })
		r.wg.Go(func() { r.pass(up, down, true) })
	}
}

// pass copies one direction; its end is the end of the connection.
func (r *Relay) pass(from, to net.Conn, answer bool) {
	defer from.Close()
	defer to.Close()
	if !r.enter(from) {
		return
	}
	defer r.leave(from)
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if n > 0 {
			r.mu.Lock()
			cut := r.cut != nil && r.cut(string(b[:n]), answer)
			r.mu.Unlock()
			if cut {
				return
			}
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (r *Relay) enter(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended {
		r.open[c] = struct{}{}
	}
	return !r.ended
}

func (r *Relay) leave(c net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, c)
}

// end closes all connections; none is made after it.
func (r *Relay) end() {
	_ = r.listener.Close()
	r.mu.Lock()
	r.ended = true
	for c := range r.open {
		_ = c.Close()
	}
	r.mu.Unlock()
	r.wg.Wait()
}
