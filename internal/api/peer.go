package api

import (
	"context"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

type strangerKey struct{}

// connected marks the requests of a connection to a Unix socket whose other end belongs to somebody else, or to nobody that
// could be named.
func (s *Server) connected(ctx context.Context, conn net.Conn) context.Context {
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return ctx
	}
	uid, err := peer(c)
	if err == nil && (uid == s.uid || uid == 0) {
		return ctx
	}
	return context.WithValue(ctx, strangerKey{}, true)
}

func stranger(ctx context.Context) bool { return ctx.Value(strangerKey{}) != nil }

// peer returns the user id of the OS process that connected.
func peer(c *net.UnixConn) (uint32, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("cannot ask who connected: %w", err)
	}
	var cred *unix.Ucred
	var asked error
	if err := raw.Control(func(fd uintptr) {
		cred, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, fmt.Errorf("cannot ask who connected: %w", err)
	}
	if asked != nil {
		return 0, fmt.Errorf("cannot ask who connected: %w", asked)
	}
	return cred.Uid, nil
}
