package api

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
)

// maxStrangers bounds the TCP connections of one listener on which nobody has shown a credential. Others need what they hold:
// a process that can open no file loses its places.
const maxStrangers = 256

// strangers are the connections over TCP on which nobody has shown a credential yet. The oldest makes room for one more.
type strangers struct {
	mu    sync.Mutex
	order list.List // of net.Conn, the oldest first
	of    map[net.Conn]*list.Element
}

type connKey struct{}

// came counts a connection and returns the context for what is asked on it.
func (s *strangers) came(ctx context.Context, c net.Conn) context.Context {
	if _, ok := c.LocalAddr().(*net.TCPAddr); !ok {
		return ctx
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = map[net.Conn]*list.Element{}
	}
	s.of[c] = s.order.PushBack(c)
	if s.order.Len() > maxStrangers {
		oldest := s.order.Front().Value.(net.Conn)
		s.forget(oldest)
		if t, ok := oldest.(*tls.Conn); ok {
			oldest = t.NetConn() // without a farewell, which could be waited for
		}
		_ = oldest.Close()
	}
	return context.WithValue(ctx, connKey{}, c)
}

// known is told that a credential was shown on the connection of a request.
func (s *strangers) known(ctx context.Context) {
	if c, ok := ctx.Value(connKey{}).(net.Conn); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.forget(c)
	}
}

func (s *strangers) changed(c net.Conn, state http.ConnState) {
	if state == http.StateClosed {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.forget(c)
	}
}

// forget ends the counting of a connection, if it is counted. The caller holds mu.
func (s *strangers) forget(c net.Conn) {
	if e := s.of[c]; e != nil {
		s.order.Remove(e)
		delete(s.of, c)
	}
}
