package api

import (
	"context"
	"net"
	"net/http"

	"soma/wire"
)

// Away answers every request on l that the daemon cannot answer at this moment, until ctx ends; it closes l. It says nothing
// of the daemon and asks for nothing.
func Away(ctx context.Context, l net.Listener) error {
	text, err := marshal(wire.Errorf(wire.Unavailable, "the daemon has lost its lease or its database, and begins anew").Do("try again"))
	if err != nil {
		return err
	}
	var unknown strangers
	server := &http.Server{
		ConnContext: unknown.came, ConnState: unknown.changed,
		ReadHeaderTimeout: headerLimit, IdleTimeout: idleLimit, ReadTimeout: bodyLimit, WriteTimeout: writeLimit, MaxHeaderBytes: maxHeader,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h := w.Header()
			h.Set("Cache-Control", "no-store")
			h.Set("Content-Type", "application/problem+json")
			h.Set("Connection", "close")
			h.Set("Retry-After", retryAfter)
			w.WriteHeader(wire.Unavailable.Status())
			_, _ = w.Write(text)
		}),
	}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(l) }()
	select {
	case <-ctx.Done():
	case <-served:
	}
	_ = server.Close()
	<-served
	return nil
}

// retryAfter is after how many seconds a client that was told to try again does so best.
const retryAfter = "1"
