package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

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
}

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
	err := row.stream(s, ctx, c)
	if c.out != nil && errors.Is(context.Cause(serving(c.r.Context())), ErrAsked) {
		err = c.out.farewell()
	}
	if w, ok := c.w.(*answerWriter); !ok || !w.begun {
		return err
	}
	var broken *brokenError
	if err != nil && ctx.Err() == nil && !errors.As(err, &broken) {
		s.Log.Error("cannot go on with a stream", "route", c.r.Pattern, "error", err)
	}
	return nil
}

// brokenError says that the reader of a stream is gone or too slow.
type brokenError struct{ error }

// begin sends the header of a stream.
func (s *Server) begin(c *call) (*stream, error) {
	c.w.Header().Set("Content-Type", "text/event-stream")
	out := &stream{w: c.w, control: http.NewResponseController(c.w), writing: s.writing}
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

// farewell tells the reader, after all that was gathered, that the stream ends because the daemon was asked to stop.
func (o *stream) farewell() error {
	if err := o.event(wire.DaemonStopping, "", wire.StoppingEvent{}); err != nil {
		return err
	}
	return o.flush()
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
	_ = o.control.SetWriteDeadline(time.Now().Add(o.writing))
	_, err := o.w.Write(o.buffer.Bytes())
	o.buffer.Reset()
	if err == nil {
		err = o.control.Flush()
	}
	if err != nil {
		return &brokenError{err}
	}
	return nil
}

// next waits for an item of a subscription; while there is none, it sends heartbeats.
func (s *Server) next(ctx context.Context, sub Subscription, out *stream) (wire.Item, error) {
	for {
		wait, cancel := context.WithTimeout(ctx, s.heartbeat)
		item, err := sub.Next(wait)
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return item, err
		}
		if err := out.heartbeat(); err != nil {
			return wire.Item{}, err
		}
	}
}
