package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	defaultTimeout = 30 * time.Second // of a handler
	headerLimit    = 10 * time.Second // to send a request's header
	bodyLimit      = 30 * time.Second // to send its body
	writeLimit     = 20 * time.Second // to take what is written
	idleLimit      = 2 * time.Minute  // of a connection between requests
	stopLimit      = 5 * time.Second  // of the requests that run when the server stops
	maxHeader      = 16 << 10
)

// ErrExposed is why Serve refuses a listener: it could be reached from other machines, and Options.Exposed is not set.
var ErrExposed = errors.New("the address can be reached from other machines")

// ErrAsked is the cause with which Serve's context ends when somebody wants the daemon to stop: its streams then say so at
// their end. After any other cause their readers take the daemon for lost.
var ErrAsked = errors.New("asked to stop")

// Serve answers requests from l, a Unix or TCP listener, until ctx ends; it closes l. At the end streams are cut (see ErrAsked),
// and other requests have 5 s to end, for which it waits; what is written then must be taken within half a second. The error is nil after an orderly end; it wraps ErrExposed if l was refused.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	d, err := s.door(l.Addr())
	if err != nil {
		_ = l.Close()
		return fmt.Errorf("cannot serve on %s: %w", l.Addr(), err)
	}
	if !d.unix && s.TLS != nil {
		l = tls.NewListener(l, s.TLS)
	}
	var fresh freshConns
	var unknown strangers
	server := &http.Server{
		ConnState: func(c net.Conn, state http.ConnState) {
			fresh.changed(c, state)
			unknown.changed(c, state)
		},
		Handler:           s.handler(d, &unknown),
		ReadHeaderTimeout: headerLimit,
		IdleTimeout:       idleLimit,
		MaxHeaderBytes:    maxHeader,
		// OPTIONS * passes the checks like every other request.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
		// A request may go on when the daemon begins to stop: the answer to the very request that stops it does.
		BaseContext: func(net.Listener) context.Context {
			return context.WithValue(context.WithoutCancel(ctx), servingKey{}, ctx)
		},
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return unknown.came(s.connected(ctx, c), c)
		},
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case err := <-served:
		_ = server.Close()
		return fmt.Errorf("cannot serve on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	fresh.close()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
	defer cancel()
	err = server.Shutdown(grace)
	<-served
	if err != nil {
		_ = server.Close()
		return fmt.Errorf("cannot end all requests within %s: %w", stopLimit, err)
	}
	return nil
}

// freshConns are the connections on which nothing was asked yet. Clients open such ones ahead of need, and a server that
// stops would wait for their first request for seconds.
type freshConns struct {
	mu     sync.Mutex
	conns  map[net.Conn]bool
	closed bool
}

func (f *freshConns) changed(c net.Conn, state http.ConnState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case state != http.StateNew:
		delete(f.conns, c)
	case f.closed:
		_ = c.Close()
	case f.conns == nil:
		f.conns = map[net.Conn]bool{c: true}
	default:
		f.conns[c] = true
	}
}

// close closes them, and those that are still to come.
func (f *freshConns) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for c := range f.conns {
		_ = c.Close()
	}
}

type servingKey struct{}

// serving returns the context of the Serve that a request belongs to: it ends when the server begins to stop.
func serving(ctx context.Context) context.Context {
	if c, ok := ctx.Value(servingKey{}).(context.Context); ok {
		return c
	}
	return ctx
}

// untilStop returns a context that ends with ctx and also when the server begins to stop. The caller calls the function.
func untilStop(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	release := context.AfterFunc(serving(ctx), cancel)
	return ctx, func() { release(); cancel() }
}

// door is how a listener can be reached.
type door struct {
	unix   bool
	scheme string // of a page of its own
	hosts  map[string]bool
}

func (s *Server) door(addr net.Addr) (door, error) {
	names := []string{"localhost", "127.0.0.1", "[::1]"}
	d := door{hosts: map[string]bool{}, scheme: "http://"}
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		d.unix = true
		for _, name := range append(names, "soma") {
			d.hosts[name], d.hosts[name+":"] = true, true
		}
		return d, nil
	}
	port := 80
	if s.TLS != nil {
		d.scheme, port = "https://", 443
	} else if !tcp.IP.IsLoopback() && !s.Exposed {
		return door{}, ErrExposed
	}
	for _, name := range names {
		d.hosts[fmt.Sprintf("%s:%d", name, tcp.Port)] = true
		if tcp.Port == port {
			d.hosts[name] = true
		}
	}
	for _, name := range s.Hosts {
		d.hosts[name] = true
	}
	return d, nil
}
