package recall

import (
	"encoding/binary"
	"hash/maphash"

	"soma/ident"
)

// Set is a set that holds the last window ids that were added to it, and possibly seems to hold others: of ids that are
// not there about one in a hundred. It is two Bloom filters, of which the older one goes when the younger one has taken a
// whole window. A nil Set takes nothing. One goroutine at a time uses it.
type Set struct {
	window     int
	n          int // ids in young
	young, old filter
}

const filterBits = 1 << 15

type filter [filterBits / 64]uint64

var seed = maphash.MakeSeed()

// New returns an empty set.
func New(window int) *Set { return &Set{window: window} }

// Add adds an id.
func (s *Set) Add(id ident.ID) {
	if s == nil {
		return
	}
	if s.n == s.window {
		s.young, s.old, s.n = filter{}, s.young, 0
	}
	s.n++
	for _, bit := range bitsOf(id) {
		s.young[bit/64] |= 1 << (bit % 64)
	}
}

// Has reports whether the set seems to hold the id.
func (s *Set) Has(id ident.ID) bool {
	bits := bitsOf(id)
	return s.young.has(bits) || s.old.has(bits)
}

func (f *filter) has(bits [4]uint16) bool {
	for _, bit := range bits {
		if f[bit/64]&(1<<(bit%64)) == 0 {
			return false
		}
	}
	return true
}

func bitsOf(id ident.ID) (bits [4]uint16) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], maphash.Bytes(seed, id[:]))
	for i := range bits {
		bits[i] = binary.LittleEndian.Uint16(b[2*i:]) % filterBits
	}
	return bits
}
