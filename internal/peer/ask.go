package peer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"strings"
	"time"

	"soma/internal/neuron"
	"soma/wire"
)

// Question is a request that another daemon is to answer. Header holds nothing of who asked.
type Question struct {
	Method string
	Path   string // with its query
	Header http.Header
	Body   []byte
	Stream bool
}

func (q *Question) request(ctx context.Context, base string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, q.Method, strings.TrimSuffix(base, "/")+q.Path, bytes.NewReader(q.Body))
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, q.Header)
	if len(q.Body) == 0 {
		req.Body, req.ContentLength = http.NoBody, 0
	}
	if q.Method != http.MethodPost {
		req.Header["Idempotency-Key"] = nil // lets the transport use another connection when an idle one turns out to be dead
	}
	return req, nil
}

// asking is a request that another daemon is answering.
type asking struct {
	place neuron.Place
	node  string
	end   context.CancelCauseFunc
}

var (
	errMoved  = errors.New("the place has moved to another node")
	errSilent = errors.New("nothing was heard for too long")
)

// Ask has the daemon that holds a place answer, and returns what it answers; the caller closes the body, which breaks off when
// the place has moved. It returns nil when this daemon holds the place. While nobody does, or the holder does not answer,
// Ask looks again for as long as its patience and ctx last; the error is then a *wire.Error with code wire.Unavailable.
func (p *Peers) Ask(ctx context.Context, place neuron.Place, q Question) (*http.Response, error) {
	patience := time.NewTimer(p.o.Patience)
	defer patience.Stop()
	for {
		if p.o.Holds(place) {
			return nil, nil
		}
		if n, ok := p.holder(place); ok {
			resp, err := p.try(ctx, &asking{place: place, node: n.ID}, q)
			switch {
			case err == nil && resp.StatusCode != http.StatusServiceUnavailable && resp.StatusCode != http.StatusUnauthorized:
				return resp, nil
			case err == nil:
				_, _ = io.CopyN(io.Discard, resp.Body, wire.MaxBody)
				_ = resp.Body.Close()
				if resp.StatusCode == http.StatusUnauthorized { // this daemon is meant, not who asks it
					p.o.Log.Warn("another node does not take the secret of this one", "node", n.ID)
					return nil, wire.Errorf(wire.Unavailable, "the daemon that holds this session does not know the secret of this one").
						Do("stop all daemons of the database and start them again")
				}
			case ctx.Err() == nil:
				p.o.Log.Debug("another node does not answer", "node", n.ID, "error", err)
			}
		}
		again := time.NewTimer(look)
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return nil, context.Cause(ctx)
		case <-patience.C:
			again.Stop()
			return nil, wire.Errorf(wire.Unavailable, "no daemon holds this session at the moment").Do("try again")
		}
	}
}

// try asks one node, until the place moves.
func (p *Peers) try(ctx context.Context, a *asking, q Question) (*http.Response, error) {
	ctx, a.end = context.WithCancelCause(ctx)
	p.mu.Lock()
	p.asked[a] = true
	p.mu.Unlock()
	done := func() {
		p.mu.Lock()
		delete(p.asked, a)
		p.mu.Unlock()
		a.end(nil)
	}
	n, ok := p.holder(a.place)
	if !ok || n.ID != a.node {
		done()
		return nil, errMoved
	}
	resp, err := p.send(ctx, n, q)
	if err != nil {
		done()
		return nil, err
	}
	b := &body{ReadCloser: resp.Body, done: done}
	if q.Stream {
		b.quiet = time.AfterFunc(silence, func() { a.end(errSilent) })
	}
	resp.Body = b
	return resp, nil
}

// body is an answer's; it belongs to one goroutine.
type body struct {
	io.ReadCloser
	quiet *time.Timer // of a stream
	done  func()
}

func (b *body) Read(to []byte) (int, error) {
	n, err := b.ReadCloser.Read(to)
	if b.quiet != nil {
		b.quiet.Reset(silence)
	}
	return n, err
}

func (b *body) Close() error {
	if b.quiet != nil {
		b.quiet.Stop()
	}
	err := b.ReadCloser.Close()
	b.done()
	return err
}

// watch breaks off what is asked of a node that does not hold the place any more.
func (p *Peers) watch(ctx context.Context) error {
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			p.mu.Lock()
			for a := range p.asked {
				a.end(context.Cause(ctx))
			}
			p.mu.Unlock()
			return nil
		case <-ticker.C:
		}
		p.mu.Lock()
		all := make([]*asking, 0, len(p.asked))
		for a := range p.asked {
			all = append(all, a)
		}
		p.mu.Unlock()
		for _, a := range all {
			if n, ok := p.holder(a.place); !ok || n.ID != a.node {
				a.end(errMoved)
			}
		}
	}
}
