package transfer

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/bits"
)

// sum is a digest of a set of rows: the sum of the digests of its rows, so that the order in which an engine gives them is of
// no matter.
type sum struct {
	rows int64
	all  [4]uint64
}

// add takes one row in and returns the size of its values in bytes. A text counts as its bytes: which of the two a column is
// differs between engines.
func (s *sum) add(values []any) (size int64) {
	h := sha256.New()
	var head [9]byte
	put := func(kind byte, n uint64) {
		head[0] = kind
		binary.BigEndian.PutUint64(head[1:], n)
		_, _ = h.Write(head[:]) // never fails
	}
	for _, v := range values {
		switch v := v.(type) {
		case nil:
			put(0, 0)
		case int64:
			put(1, uint64(v))
			size += 8
		case string:
			put(2, uint64(len(v)))
			_, _ = h.Write([]byte(v))
			size += int64(len(v))
		case []byte:
			put(2, uint64(len(v)))
			_, _ = h.Write(v)
			size += int64(len(v))
		default:
			// No column of a store is anything else. Were one, both sides would have to say the same of it.
			b := fmt.Append(nil, v)
			put(3, uint64(len(b)))
			_, _ = h.Write(b)
			size += int64(len(b))
		}
	}
	var digest [sha256.Size]byte
	h.Sum(digest[:0])
	var carry uint64
	for i := range s.all {
		s.all[i], carry = bits.Add64(s.all[i], binary.LittleEndian.Uint64(digest[8*i:]), carry)
	}
	s.rows++
	return size
}

func (s sum) report(table string) TableReport {
	return TableReport{Name: table, Rows: s.rows, Sum: fmt.Sprintf("%016x%016x%016x%016x", s.all[3], s.all[2], s.all[1], s.all[0])}
}
