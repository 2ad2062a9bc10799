package link

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"sync"

	"soma/internal/pykernel/frame"
)

// Bounds of what waits for one python kernel (P-016).
const (
	MaxFrames = 2048
	MaxBytes  = 64 << 20
)

// Bounds of what a python kernel has sent and nobody has settled: its own outbox is smaller (P-015), so one that passes
// them does not keep to the protocol.
const (
	maxOpen      = 8192
	maxOpenBytes = 128 << 20
)

// ErrFull: the outbox is at its bound.
var ErrFull = errors.New("outbox full")

// ErrProtocol: the python kernel speaks another version; nothing but its end can be asked of it.
var ErrProtocol = errors.New("another protocol")

// Refused is the python kernel's no to an attach: proof that this is not the process that the daemon means.
type Refused struct{ Reason string }

func (r *Refused) Error() string { return "attach refused: " + r.Reason }

// Handler takes what a connection brings. Its methods are called by the goroutine of Serve, one at a time; but for Hello
// they must not block.
type Handler interface {
	// Waiting is called every two seconds while no hello comes; an error gives the connection up.
	Waiting() error
	// Hello is called before any frame is written; an error gives the connection up.
	Hello(ctx context.Context, h frame.Hello) error
	// Frame is called once for each frame, however often it is sent. Its number must be given to Settle later.
	Frame(seq uint64, f *frame.Frame)
	// Acked says which frames of the daemon are acknowledged now for the first time, and Evidence that all frames of the
	// python kernel up to its number are known to be acknowledged there: they will not be sent again.
	Acked(seqs []uint64)
	Evidence(seq uint64)
	Output(cell string, offset int64, text string)
	Pong(n uint64)
}

// Link is the session of one python kernel. Its methods are safe for concurrent use; Serve runs once at a time.
type Link struct {
	mu     sync.Mutex
	out    []*outgoing // not acknowledged, by number
	bytes  int         // of the bodies in out
	last   uint64      // highest number given
	acked  uint64      // highest number that the python kernel has acknowledged
	line   *line       // of the connection, nil without one
	sent   uint64      // highest number written on this connection
	ping   uint64      // to be written, 0 for none
	wake   chan struct{}
	in     uint64 // highest number received
	open   []incoming
	held   int    // bytes of the units in open
	settle uint64 // all up to it are settled
	told   uint64 // highest acknowledgement written on this connection
	again  bool   // a replay wants its acknowledgement again
	proven uint64 // highest number given to Evidence
}

type outgoing struct {
	seq     uint64
	body    []byte
	carried uint64 // the acknowledgement that went with it
	written bool   // on any connection, perhaps in part
}

type incoming struct {
	seq     uint64
	size    int
	settled bool
}

// New returns a Link without frames.
func New() *Link { return &Link{wake: make(chan struct{}, 1)} }

// Append takes a committed frame; body is its JSON object. It does not block. Numbers rise; one that was given before is
// passed over. written says that an earlier daemon may have written it.
func (l *Link) Append(seq uint64, body []byte, written bool) {
	l.mu.Lock()
	fresh := seq > l.last
	if fresh {
		l.last = seq
		l.out = append(l.out, &outgoing{seq: seq, body: body, written: written})
		l.bytes += len(body)
	}
	l.mu.Unlock()
	if fresh {
		l.push()
	}
}

// Continue says that numbers up to last were given by earlier daemons, whose acknowledged frames are not known here.
func (l *Link) Continue(last uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = max(l.last, last)
}

// Room returns ErrFull when the outbox is at its bound.
func (l *Link) Room() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.out) >= MaxFrames || l.bytes >= MaxBytes {
		return fmt.Errorf("%w: %d frames, %d bytes", ErrFull, len(l.out), l.bytes)
	}
	return nil
}

// Written reports whether the frame may have reached the python kernel.
func (l *Link) Written(seq uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if seq <= l.acked {
		return true
	}
	if i := l.find(seq); i < len(l.out) && l.out[i].seq == seq {
		return l.out[i].written
	}
	return false
}

// find returns the index of the first frame at or after seq.
func (l *Link) find(seq uint64) int {
	return sort.Search(len(l.out), func(i int) bool { return l.out[i].seq >= seq })
}

// Settle says that what follows from the received frame is committed: it is acknowledged, with all before it, as soon as
// those are settled too.
func (l *Link) Settle(seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.open {
		if l.open[i].seq == seq {
			l.open[i].settled = true
			break
		}
	}
	n := 0
	for n < len(l.open) && l.open[n].settled {
		l.settle = l.open[n].seq
		l.held -= l.open[n].size
		n++
	}
	if n > 0 {
		l.open = append(l.open[:0], l.open[n:]...)
		l.rouse()
	}
}

// Ping asks for one ping after the frames that were appended before; a newer one replaces it. Without a connection it
// comes to nothing.
func (l *Link) Ping(n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ping = n
	l.rouse()
}

// Ack is the acknowledgement of the next attach.
func (l *Link) Ack() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.settle
}

func (l *Link) rouse() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// receive notes the arrival of a frame of size bytes and reports whether it is new.
func (l *Link) receive(seq uint64, size int) (fresh bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if seq <= l.in {
		l.again = true
		l.rouse()
		return false, nil
	}
	if len(l.open) >= maxOpen || l.held+size > maxOpenBytes {
		return false, errors.New("the python kernel sends more than its outbox may hold")
	}
	l.in = seq
	l.open = append(l.open, incoming{seq: seq, size: size})
	l.held += size
	return true, nil
}

// confirm takes an acknowledgement of the python kernel. It returns the frames that it covers for the first time, and
// the python kernel's own number that it proves, 0 for none.
func (l *Link) confirm(ack uint64) (seqs []uint64, evidence uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ack > l.last {
		return nil, 0, fmt.Errorf("%w: frame %d is acknowledged, the last one is %d", frame.ErrMalformed, ack, l.last)
	}
	if ack <= l.acked {
		return nil, 0, nil
	}
	l.acked = ack
	n := 0
	for n < len(l.out) && l.out[n].seq <= ack {
		o := l.out[n]
		seqs = append(seqs, o.seq)
		l.bytes -= len(o.body)
		evidence = max(evidence, o.carried)
		l.out[n] = nil
		n++
	}
	l.out = l.out[n:]
	return seqs, l.prove(evidence), nil
}

// prove raises the proven number to seq and returns it, or 0 where it was proven before.
func (l *Link) prove(seq uint64) uint64 {
	if seq <= l.proven {
		return 0
	}
	l.proven = seq
	return seq
}
