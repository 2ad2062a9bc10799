package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"soma/internal/feed"
	"soma/wire"
)

// maxStreams bounds the streams that are open at one time.
const maxStreams = 1024

// stream writes a text/event-stream to one reader. It belongs to one goroutine.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	writing time.Duration
	buffer  bytes.Buffer
	allowed func() bool // whether its token still opens the stream
	checked time.Time   // when that was last asked
	wrote   time.Time   // when the reader last heard something
	release func() bool

	mu    sync.Mutex
	until time.Time // no write goes on after it; zero while the stream need not end
}

// endLimit is how long a reader may take for what is written at the end of its stream, or of the server: a stop does not wait
// for those who do not read.
const endLimit = 500 * time.Millisecond

// flushAt is how many bytes a stream gathers at most before they are written.
const flushAt = 64 << 10

// streamed runs a route that streams. Errors before the first byte come back; later ones end the stream.
func (s *Server) streamed(row route, c *call) error {
	if s.streams.Add(1) > s.most {
		s.streams.Add(-1)
		return wire.Errorf(wire.Busy, "%d streams are open", s.most).Do("close one")
	}
	defer s.streams.Add(-1)
	ctx, cancel := untilStop(c.r.Context())
	defer cancel()
	done, err := s.elsewhere(row, ctx, c)
	if err == nil && !done {
		err = row.stream(s, ctx, c)
	}
	if out := c.out; out != nil {
		defer out.release()
		var refusal *wire.Error
		switch {
		case errors.Is(context.Cause(serving(c.r.Context())), ErrAsked):
			err = out.last(wire.DaemonStopping, wire.StoppingEvent{})
		case errors.As(err, &refusal) && refusal.Code == wire.Unauthorized:
			return out.last(wire.StreamRefused, refusal)
		}
	}
	if w, ok := c.w.(*answerWriter); !ok || !w.begun {
		return err
	}
	var broken *brokenError
	moved := errors.Is(err, io.EOF) || errors.Is(err, feed.ErrClosed) // another daemon has it now
	if err != nil && ctx.Err() == nil && !errors.As(err, &broken) && !moved {
		s.Log.Error("cannot go on with a stream", "route", c.r.Pattern, "error", err)
	}
	return nil
}

// brokenError says that the reader of a stream is gone or too slow.
type brokenError struct{ error }

// begin sends the header of a stream.
func (s *Server) begin(c *call) (*stream, error) {
	c.w.Header().Set("Content-Type", "text/event-stream")
	out := &stream{
		w: c.w, control: http.NewResponseController(c.w), writing: s.writing, checked: time.Now(),
		allowed: func() bool { return s.credential(c.r) >= Read },
	}
	out.release = context.AfterFunc(serving(c.r.Context()), out.hurry)
	out.buffer.WriteString(": soma\n\n")
	c.out = out
	return out, out.flush()
}

// event adds an event; id may be "". Data is JSON without line breaks.
func (o *stream) event(kind, id string, body any) error {
	data, err := marshal(body)
	if err != nil {
		return fmt.Errorf("cannot write an event: %w", err)
	}
	if id != "" {
		fmt.Fprintf(&o.buffer, "id: %s\n", id)
	}
	fmt.Fprintf(&o.buffer, "event: %s\ndata: ", kind)
	o.buffer.Write(data) // ends with a line break
	o.buffer.WriteByte('\n')
	if o.buffer.Len() >= flushAt {
		return o.flush()
	}
	return nil
}

// last tells the reader, after all that was gathered, why the stream ends. Who does not take it has none the less ended.
func (o *stream) last(kind string, body any) error {
	o.hurry()
	if err := o.event(kind, "", body); err != nil {
		return err
	}
	return o.flush()
}

// hurry ends what is written within endLimit, also a write that blocks. It may be called from any goroutine.
func (o *stream) hurry() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.until.IsZero() {
		o.until = time.Now().Add(endLimit)
		_ = o.control.SetWriteDeadline(o.until)
	}
}

// check returns a wire.Unauthorized if the token that opened the stream is not valid any more.
func (o *stream) check() error {
	o.checked = time.Now()
	if o.allowed() {
		return nil
	}
	return wire.Errorf(wire.Unauthorized, "the token of this stream is not the one of this home any more").
		Do("follow again with the new one")
}

// heartbeat shows the reader that the stream lives.
func (o *stream) heartbeat() error {
	o.buffer.WriteString(":\n\n")
	return o.flush()
}

// flush writes what was gathered. A reader that does not take it within the limit has lost its stream.
func (o *stream) flush() error {
	if o.buffer.Len() == 0 {
		return nil
	}
	o.mu.Lock()
	limit := time.Now().Add(o.writing)
	if !o.until.IsZero() && o.until.Before(limit) {
		limit = o.until
	}
	_ = o.control.SetWriteDeadline(limit)
	o.mu.Unlock()
	_, err := o.w.Write(o.buffer.Bytes())
	o.buffer.Reset()
	if err == nil {
		err = o.control.Flush()
	}
	if err != nil {
		return &brokenError{err}
	}
	o.wrote = time.Now()
	return nil
}

// next waits for an item of a subscription; while there is none, it sends heartbeats. At each of them, and in their rhythm
// while items come, it looks at the token.
func next[T any](s *Server, ctx context.Context, sub interface {
	Next(context.Context) (T, error)
}, out *stream) (item T, err error) {
	for {
		wait, cancel := context.WithTimeout(ctx, s.heartbeat)
		item, err = sub.Next(wait)
		cancel()
		quiet := err != nil
		if ctx.Err() != nil || quiet && !errors.Is(err, context.DeadlineExceeded) {
			return item, err
		}
		if quiet || time.Since(out.checked) >= s.heartbeat {
			if err := out.check(); err != nil {
				return *new(T), err
			}
		}
		if !quiet {
			return item, nil
		}
		if err := out.heartbeat(); err != nil {
			return *new(T), err
		}
	}
}
