package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"soma/wire"
)

// ErrEnough, returned by the callback of Follow or Hints, ends it without an error.
var ErrEnough = errors.New("enough")

// ErrStopped ends a stream whose daemon was asked to stop. It is no ErrLost: somebody wants the daemon to be away.
var ErrStopped = errors.New("the daemon was stopped")

// silence is how long a stream may be without any byte, heartbeats included, before its daemon counts as lost.
const silence = 3 * wire.Heartbeat

// maxFrame bounds one event of a stream in bytes.
const maxFrame = 16 << 20

// Frame is what a session's stream brings. Exactly one of the pointers is set.
type Frame struct {
	Event  *wire.Event       // committed: shown once, in order, without a gap
	Delta  *wire.DeltaEvent  // live text of an attempt: shown, never truth
	Output *wire.OutputEvent // live output of a cell: the same
	Reset  *wire.ResetEvent  // the cursor could not be followed; its Session is the state, the stream goes on after its Last
	// Cursor is where to go on from once this frame has been dealt with.
	Cursor wire.Cursor
}

// Follow follows a session's events after a cursor (the zero Cursor: from the start) and gives each frame to fn,
// one at a time, from this goroutine. It first brings the committed events after the cursor and then what comes. It
// returns the cursor after the last frame that fn took without an error, and
//   - nil when fn returned ErrEnough,
//   - an error that is ErrLost when the daemon is not there or went away; Follow called again with the returned cursor goes
//     on without a gap and without an event twice,
//   - ErrStopped when the daemon was asked to stop; the same holds for a later Follow,
//   - ctx.Err() when ctx ended, a *wire.Error (wire.NotFound, wire.Unauthorized …; the latter also in the middle, when the token
//     is not valid any more: a later Follow asks Options.Token again), or fn's own error.
//
// Follow ends for no other reason: a session that is closed has no further events, but its stream stays open.
func (c *Client) Follow(ctx context.Context, session string, from wire.Cursor, fn func(Frame) error) (wire.Cursor, error) {
	at := from
	err := c.stream(ctx, sessionPath(session)+"/events", from, func(kind, id string, data []byte) error {
		f, err := frame(kind, id, data, at)
		if err != nil {
			return err
		}
		if f == (Frame{}) {
			return nil
		}
		if err := fn(f); err != nil {
			return err
		}
		at = f.Cursor
		return nil
	})
	return at, err
}

// Hints follows the daemon-wide stream: fn is told which session is at which sequence, at least once after each change that
// is not followed by another one. Errors are those of Follow.
func (c *Client) Hints(ctx context.Context, fn func(wire.Hint) error) error {
	return c.stream(ctx, "/v1/events", wire.Cursor{}, func(kind, _ string, data []byte) error {
		if kind == wire.DaemonStopping {
			return ErrStopped
		}
		if kind == wire.StreamRefused {
			return refused(data)
		}
		var h wire.Hint
		if err := decode(data, &h); err != nil {
			return err
		}
		return fn(h)
	})
}

// frame reads one event of a session's stream that stands at a cursor. A kind without id that is not known here is the zero
// Frame: live kinds may be added.
func frame(kind, id string, data []byte, at wire.Cursor) (f Frame, err error) {
	f.Cursor = at
	switch kind {
	case wire.Delta:
		f.Delta = new(wire.DeltaEvent)
		err = decode(data, f.Delta)
	case wire.CellOutput:
		f.Output = new(wire.OutputEvent)
		err = decode(data, f.Output)
	case wire.Reset:
		f.Reset = new(wire.ResetEvent)
		err = decode(data, f.Reset)
		f.Cursor = wire.Cursor{Generation: f.Reset.Generation, Seq: f.Reset.Last}
	case wire.DaemonStopping:
		return Frame{}, ErrStopped
	case wire.StreamRefused:
		return Frame{}, refused(data)
	default:
		if id == "" {
			return Frame{}, nil
		}
		f.Event = new(wire.Event)
		if err = decode(data, f.Event); err == nil {
			f.Cursor, err = wire.ParseCursor(id)
		}
	}
	return f, err
}

// refused returns the *wire.Error with which a stream ends whose token is not valid any more.
func refused(data []byte) error {
	e := new(wire.Error)
	if err := decode(data, e); err != nil {
		return err
	}
	return e
}

func decode(data []byte, out any) error {
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("cannot read the daemon's stream: %w", err)
	}
	return nil
}

// stream opens a stream after a cursor and gives its events to each, until that returns an error or the stream ends.
func (c *Client) stream(ctx context.Context, path string, from wire.Cursor, each func(kind, id string, data []byte) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	quiet := time.AfterFunc(c.silence, func() { cancel(errSilent) })
	defer quiet.Stop()
	header := http.Header{"Accept": {"text/event-stream"}}
	if from != (wire.Cursor{}) {
		header.Set("Last-Event-ID", from.String())
	}
	resp, err := c.send(ctx, http.MethodGet, path, nil, header)
	if err != nil {
		return silent(ctx, err)
	}
	defer resp.Body.Close()
	heard := reader(func(p []byte) (int, error) {
		quiet.Reset(c.silence)
		return resp.Body.Read(p)
	})
	err = events(heard, func(kind, id string, data []byte) error {
		quiet.Stop() // the callback's time is not the daemon's
		err := each(kind, id, data)
		quiet.Reset(c.silence)
		if err != nil {
			return &callbackError{err}
		}
		return nil
	})
	var own *callbackError
	switch {
	case errors.As(err, &own) && errors.Is(own.error, ErrEnough):
		return nil
	case errors.As(err, &own):
		return own.error
	case errors.Is(err, bufio.ErrTooLong): // no lost daemon: it would send the same again
		return fmt.Errorf("cannot read the daemon's stream: an event is larger than %d bytes", maxFrame)
	}
	return silent(ctx, failed(ctx, err))
}

var errSilent = errors.New("nothing was heard for too long")

// silent turns a context that was ended by the silence into a lost daemon.
func silent(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errSilent) {
		return &LostError{Err: errSilent}
	}
	return err
}

// callbackError marks an error as the callback's.
type callbackError struct{ error }

type reader func([]byte) (int, error)

func (r reader) Read(p []byte) (int, error) { return r(p) }

// events reads a text/event-stream until it breaks; it never returns nil. Its end is io.ErrUnexpectedEOF: the daemon's
// streams have none.
func events(r io.Reader, each func(kind, id string, data []byte) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), maxFrame)
	var kind, id string
	var data []byte
	for lines.Scan() {
		line := lines.Bytes()
		if len(line) == 0 {
			if data != nil {
				if err := each(kind, id, data); err != nil {
					return err
				}
			}
			kind, id, data = "", "", nil
			continue
		}
		name, value := field(line)
		switch name {
		case "event":
			kind = string(value)
		case "id":
			id = string(value)
		case "data":
			if data != nil {
				data = append(data, '\n')
			}
			data = append(data, value...)
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return io.ErrUnexpectedEOF
}

// field splits a line of a stream; a comment has an empty name.
func field(line []byte) (name string, value []byte) {
	for i, b := range line {
		if b == ':' {
			value = line[i+1:]
			if len(value) > 0 && value[0] == ' ' {
				value = value[1:]
			}
			return string(line[:i]), value
		}
	}
	return string(line), nil
}
