package chaos

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
)

// relay stands between clients and a daemon: what it connects it can cut, in the middle of whatever is said.
type relay struct {
	to func(context.Context) (net.Conn, error)

	mu    sync.Mutex
	lines map[*line]bool
	run   sync.WaitGroup
}

func newRelay(to func(context.Context) (net.Conn, error)) *relay {
	return &relay{to: to, lines: map[*line]bool{}}
}

// line is one connection through the relay.
type line struct {
	near, far net.Conn
	once      sync.Once
}

func (l *line) cut() {
	l.once.Do(func() {
		_ = l.near.Close()
		_ = l.far.Close()
	})
}

// dial connects a client.
func (r *relay) dial(ctx context.Context) (net.Conn, error) {
	far, err := r.to(ctx)
	if err != nil {
		return nil, err
	}
	mine, near := net.Pipe()
	l := &line{near: near, far: far}
	r.mu.Lock()
	r.lines[l] = true
	r.mu.Unlock()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
		both.Go(func() {
			pass(way[0], way[1])
			l.cut()
		})
	}
	r.run.Go(func() {
		both.Wait()
		r.mu.Lock()
		delete(r.lines, l)
		r.mu.Unlock()
	})
	return mine, nil
}

// pass copies until either side ends.
func pass(from, to net.Conn) {
	b := make([]byte, 4096)
	for {
		n, err := from.Read(b)
		if n > 0 {
			if _, werr := to.Write(b[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// cut cuts some of the connections that are open, one at least, and returns how many.
func (r *relay) cut(random *rand.Rand) int {
	r.mu.Lock()
	var all []*line
	for l := range r.lines {
		all = append(all, l)
	}
	r.mu.Unlock()
	if len(all) == 0 {
		return 0
	}
	n := 1 + random.IntN(len(all))
	for _, i := range random.Perm(len(all))[:n] {
		all[i].cut()
	}
	return n
}

// close cuts all and waits until nothing of it runs.
func (r *relay) close() {
	r.mu.Lock()
	for l := range r.lines {
		l.cut()
	}
	r.mu.Unlock()
	r.run.Wait()
}
