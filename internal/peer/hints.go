package peer

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"soma/internal/neuron/lease"
	"soma/wire"
)

const (
	// nodesGap is the time between two looks at who is there to be listened to, and between two tries to listen.
	nodesGap = 500 * time.Millisecond
	// refusedGap is the time between two tries at a daemon that has no room for a listener. As often it is said, once for all of them,
	// that hints were missed.
	refusedGap = 15 * time.Second
	// maxHint bounds one line of another daemon's stream.
	maxHint = 64 << 10
)

// Listen lets the hints of the other daemons come until the function that it returns is called.
func (p *Peers) Listen() (end func()) {
	p.count(1)
	return func() { p.count(-1) }
}

func (p *Peers) count(n int) {
	p.mu.Lock()
	p.listeners += n
	p.mu.Unlock()
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// listen keeps one stream open to each other daemon that holds something, which are fewer than there are places, while somebody
// wants to hear.
func (p *Peers) listen(ctx context.Context) error {
	ends := map[string]func(){}
	over := make(chan string)
	defer func() {
		for _, end := range ends {
			end()
		}
		for len(ends) > 0 {
			delete(ends, <-over)
		}
	}()
	ticker := time.NewTicker(nodesGap)
	defer ticker.Stop()
	refused := time.NewTicker(p.o.RefusedGap)
	defer refused.Stop()
	for {
		p.mu.Lock()
		wanted := p.listeners > 0
		p.mu.Unlock()
		others := map[string]lease.Node{}
		if wanted {
			others = p.holders()
		}
		for id := range others {
			if ends[id] != nil {
				continue
			}
			one, end := context.WithCancel(ctx)
			err := p.tasks.Go(one, "hints of "+id, func(ctx context.Context) error {
				defer func() { over <- id }()
				p.hear(ctx, id)
				return nil
			})
			if err != nil {
				end()
				return nil // stopping
			}
			ends[id] = end
		}
		for id, end := range ends {
			if _, there := others[id]; !there {
				end()
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case id := <-over:
			ends[id]()
			delete(ends, id)
		case <-p.kick:
		case <-ticker.C:
		case <-refused.C:
			if p.refused.Swap(false) && wanted {
				p.o.Missed()
			}
		}
	}
}

// hear follows one node's hints until ctx ends. What was told while nobody listened is Missed.
func (p *Peers) hear(ctx context.Context, id string) {
	for {
		gap := nodesGap
		if n, ok := p.holders()[id]; ok {
			err := p.follow(ctx, n)
			if errors.Is(err, errRefused) {
				p.refused.Store(true)
				gap = p.o.RefusedGap
			}
			if err != nil && ctx.Err() == nil {
				p.o.Log.Debug("cannot hear another node", "node", id, "error", err)
			}
		}
		again := time.NewTimer(gap)
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return
		}
	}
}

var errRefused = errors.New("it has no room for a listener")

func (p *Peers) follow(ctx context.Context, n lease.Node) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	quiet := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer quiet.Stop()
	q := Question{Method: http.MethodGet, Path: "/v1/events", Header: http.Header{"Accept": {"text/event-stream"}}}
	resp, err := p.send(ctx, n, q)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == wire.Busy.Status() {
		return errRefused
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("HTTP status %d", resp.StatusCode)
	}
	p.o.Missed()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxHint)
	for kind := ""; lines.Scan(); quiet.Reset(silence) {
		name, value, _ := bytes.Cut(lines.Bytes(), []byte(": "))
		switch {
		case len(lines.Bytes()) == 0:
			kind = ""
		case string(name) == "event":
			kind = string(value)
		case string(name) == "data" && kind == "hint":
			var h wire.Hint
			if err := json.Unmarshal(value, &h); err != nil {
				return fmt.Errorf("cannot read a hint: %w", err)
			}
			p.o.Hint(h)
		}
	}
	return lines.Err()
}
