package schedule

import "soma/ident"

// DefaultMaxConcurrent is how many processes hold a slot at once unless the owner says otherwise.
const DefaultMaxConcurrent = 4

// Kind is what a decision says.
type Kind uint8

// The decisions: give PID a slot; nobody is ready; somebody is ready but all slots are taken; no more slots are given.
const (
	Idle Kind = iota
	Run
	AtConcurrencyLimit
	Shutdown
)

func (k Kind) String() string {
	return [...]string{"idle", "run", "at concurrency limit", "shutdown"}[k]
}

// Decision is the answer of Next; PID is set for Run only.
type Decision struct {
	Kind Kind
	PID  ident.PID
}

// RoundRobin gives slots in the order in which processes became ready, so nobody waits for longer than those before it
// take. Every call is O(1). It is not safe for concurrent use: one goroutine owns it.
type RoundRobin struct {
	max     int
	running int
	closed  bool
	entries map[ident.PID]*entry
	// head and tail of the doubly linked queue of waiting entries
	head, tail *entry
	waiting    int
}

type entry struct {
	pid        ident.PID
	running    bool
	again      bool // became ready while it still held its slot
	prev, next *entry
}

// NewRoundRobin returns an empty scheduler that lets max processes run at once; max below 1 means DefaultMaxConcurrent.
func NewRoundRobin(max int) *RoundRobin {
	if max < 1 {
		max = DefaultMaxConcurrent
	}
	return &RoundRobin{max: max, entries: map[ident.PID]*entry{}}
}

// Ready queues a process. One that waits already keeps its place; one that still holds a slot is queued by its Done.
func (r *RoundRobin) Ready(pid ident.PID) {
	e := r.entries[pid]
	switch {
	case e == nil:
		e = &entry{pid: pid}
		r.entries[pid] = e
		r.push(e)
	case e.running:
		e.again = true
	}
}

// Done gives a process's slot back, or takes it out of the queue. A process not known here is passed over.
func (r *RoundRobin) Done(pid ident.PID) {
	e := r.entries[pid]
	switch {
	case e == nil:
	case !e.running:
		r.unlink(e)
		delete(r.entries, pid)
	default:
		r.running--
		if !e.again {
			delete(r.entries, pid)
			return
		}
		e.running, e.again = false, false
		r.push(e)
	}
}

// Next decides once; the owner asks again after each Run until the answer is another. It is to be asked after every Ready
// and Done: between those nothing changes.
func (r *RoundRobin) Next() Decision {
	switch {
	case r.closed:
		return Decision{Kind: Shutdown}
	case r.head == nil:
		return Decision{Kind: Idle}
	case r.running >= r.max:
		return Decision{Kind: AtConcurrencyLimit}
	}
	e := r.head
	r.unlink(e)
	e.running = true
	r.running++
	return Decision{Kind: Run, PID: e.pid}
}

// Shutdown makes every later Next answer Shutdown. Slots may still be given back.
func (r *RoundRobin) Shutdown() { r.closed = true }

// Running counts the processes that hold a slot.
func (r *RoundRobin) Running() int { return r.running }

// Waiting counts the queued processes.
func (r *RoundRobin) Waiting() int { return r.waiting }

func (r *RoundRobin) push(e *entry) {
	e.prev, e.next = r.tail, nil
	if r.tail == nil {
		r.head = e
	} else {
		r.tail.next = e
	}
	r.tail = e
	r.waiting++
}

func (r *RoundRobin) unlink(e *entry) {
	if e.prev == nil {
		r.head = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		r.tail = e.prev
	} else {
		e.next.prev = e.prev
	}
	e.prev, e.next = nil, nil
	r.waiting--
}
