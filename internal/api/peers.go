package api

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"soma/wire"
)

// Peers are the other daemons that share this one's store. Each of them answers for the sessions that it holds.
type Peers interface {
	// Holds reports whether this daemon holds what is named, or nobody knows it.
	Holds(ctx context.Context, n Named) (bool, error)
	// Ask has the daemon that holds what is named answer a request, and returns its answer; the caller closes the body, which
	// ends when that daemon does not hold it any more. It returns nil where Holds would be true. While nobody holds it, it
	// waits for a bounded time; the error is then a wire.Unavailable.
	Ask(ctx context.Context, n Named, q Question) (*http.Response, error)
	// Hints begins to listen to the committed events of this daemon and to the hints of the others.
	Hints() Subscription
}

// Named is what a request names; exactly one field is set.
type Named struct {
	Session string
	PID     uint64
	Branch  string
	Cell    string
	Neuron  string // owner/kind/key
}

// Question is a request to be answered elsewhere. Nothing of it tells who asks.
type Question struct {
	Method string
	Path   string // with its query
	Header http.Header
	Body   []byte
	Stream bool
}

// handedOn are the headers of a request that the daemon which answers needs.
var handedOn = []string{"Content-Type", "Accept", "Last-Event-ID", wire.HeaderVersion}

// named reads what the request names.
func (c *call) named() (n Named, err error) {
	p := c.r.PathValue
	switch {
	case p("session") != "":
		n.Session, err = c.id("session")
	case p("pid") != "":
		n.PID, err = c.pid()
	case p("branch") != "":
		n.Branch, err = c.id("branch")
	case p("cell") != "":
		n.Cell, err = c.id("cell")
	default:
		n.Neuron = p("owner") + "/" + p("kind") + "/" + p("key")
	}
	return n, err
}

// elsewhere answers a request by the daemon that holds what it names, and reports whether that has been done.
func (s *Server) elsewhere(row route, ctx context.Context, c *call) (done bool, err error) {
	if s.Peers == nil || !row.owned || row.wait > 0 && c.query.Get("wait") == "" {
		return false, nil
	}
	n, err := c.named()
	if err != nil {
		return false, err
	}
	if c.r.Header.Get(wire.HeaderHop) != "" {
		held, err := s.Peers.Holds(ctx, n)
		if err == nil && !held {
			err = moving()
		}
		return false, err
	}
	q := Question{Method: c.r.Method, Path: c.r.URL.RequestURI(), Header: http.Header{}, Stream: row.Stream}
	for _, name := range handedOn {
		if v := c.r.Header.Get(name); v != "" {
			q.Header.Set(name, v)
		}
	}
	if row.Body > 0 {
		if q.Body, err = c.read(); err != nil {
			return false, err
		}
	}
	asking, cancel := untilStop(ctx) // a daemon that stops, or begins anew, waits for no other
	defer cancel()
	resp, err := s.Peers.Ask(asking, n, q)
	if err != nil && asking.Err() != nil && ctx.Err() == nil && !errors.Is(context.Cause(serving(c.r.Context())), ErrAsked) {
		err = moving()
	}
	if err != nil || resp == nil {
		return false, err
	}
	defer resp.Body.Close()
	if row.Stream && resp.StatusCode == http.StatusOK {
		return true, s.relay(ctx, c, resp.Body)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxRelayed+1))
	if err != nil || len(text) > maxRelayed {
		return false, moving()
	}
	for _, name := range []string{"Content-Type", "Retry-After"} {
		if v := resp.Header.Get(name); v != "" {
			c.w.Header().Set(name, v)
		}
	}
	write(c.w, c.r, resp.StatusCode, text)
	return true, nil
}

// maxRelayed bounds an answer of another daemon in bytes, and one event of its stream.
const maxRelayed = 64 << 20

func moving() *wire.Error {
	return wire.Errorf(wire.Unavailable, "ownership is moving between daemons").Do("try again")
}

// relay hands a stream of another daemon on, event by event, for as long as the reader's token is valid. When the other
// daemon stops or is lost, the stream ends as one whose daemon was lost: who follows it again finds the next holder.
func (s *Server) relay(ctx context.Context, c *call, body io.Reader) error {
	out, err := s.begin(c)
	if err != nil {
		return err
	}
	lines := bufio.NewReaderSize(body, 64<<10)
	var event bytes.Buffer
	for last := false; ; {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			err = nil
		}
		if err != nil || event.Len()+len(line) > maxRelayed {
			return out.flush() // of events only whole ones
		}
		last = last || bytes.HasPrefix(line, []byte("event: "+wire.DaemonStopping)) || bytes.HasPrefix(line, []byte("event: "+wire.StreamRefused))
		event.Write(line)
		if !bytes.Equal(line, []byte("\n")) {
			continue
		}
		if last {
			return out.flush()
		}
		if time.Since(out.checked) >= s.heartbeat {
			if err := out.check(); err != nil {
				return err
			}
		}
		out.buffer.Write(event.Bytes())
		event.Reset()
		if lines.Buffered() == 0 || out.buffer.Len() >= flushAt {
			if err := out.flush(); err != nil {
				return err
			}
		}
	}
}
