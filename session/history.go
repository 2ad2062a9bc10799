package session

// DefaultHistory is the number of events that an observer keeps where nothing else is asked for.
const DefaultHistory = 100_000

// firstSlots is the size with which the history begins; it doubles until it holds as much as it may.
const firstSlots = 64

// record is what the history keeps of an event.
type record struct {
	signal  Signal // nil where a value was wrapped: the envelope is made again when someone asks
	payload any
	at      int64 // Unix time in nanoseconds
	denied  bool
}

// ring keeps the last events and the named streams of their numbers. Numbers begin at 1.
type ring struct {
	slots   []record
	next    uint64 // the number of the next event
	most    uint64
	streams map[string][]uint64
}

func newRing(most int) ring {
	return ring{next: 1, most: uint64(most), streams: map[string][]uint64{}}
}

// first is the number of the oldest event that is kept; it is next where there is none.
func (r *ring) first() uint64 {
	if kept := r.next - 1; kept > r.most {
		return r.next - r.most
	}
	return 1
}

func (r *ring) at(seq uint64) *record { return &r.slots[seq%uint64(len(r.slots))] }

func (r *ring) add(rec record) uint64 {
	if kept, size := r.next-1, uint64(len(r.slots)); kept >= size && size < r.most {
		grown := make([]record, min(max(2*size, firstSlots), r.most))
		for seq := r.first(); seq < r.next; seq++ {
			grown[seq%uint64(len(grown))] = *r.at(seq)
		}
		r.slots = grown
	}
	seq := r.next
	r.next++
	*r.at(seq) = rec
	return seq
}

// stream appends an event to a named stream; what has left the history leaves the stream.
func (r *ring) stream(name string, seq uint64) {
	r.streams[name] = append(r.kept(r.streams[name]), seq)
}

// kept cuts off what has left the history. A stream is in the order of its numbers but for events that raced each other to it.
func (r *ring) kept(seqs []uint64) []uint64 {
	first := r.first()
	n := 0
	for n < len(seqs) && seqs[n] < first {
		n++
	}
	return seqs[n:]
}
