package ident

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"
)

// Size is the length of an ID in bytes; TextSize that of its text form in characters.
const (
	Size     = 16
	TextSize = 26
)

// ID is a time-ordered identifier: 48 bits of Unix milliseconds, a 16-bit counter within the millisecond, 48 random bits,
// and a 16-bit attempt. IDs made by one OS process sort in the order they were made, which keeps unique indexes on them
// cheap (random ids cost a third of the commit rate). The zero ID means "none".
type ID [Size]byte

// ErrInvalid reports a text that is no ID.
var ErrInvalid = errors.New("invalid id")

var text = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

var clock struct {
	sync.Mutex
	ms    uint64
	count uint16
}

// New returns a fresh ID stamped with now. It is safe for concurrent use; when now stands still or goes back, the
// counter (and past 65,535 the millisecond) keeps the order.
func New(now time.Time) ID {
	ms := uint64(now.UnixMilli())
	clock.Lock()
	switch {
	case ms > clock.ms:
		clock.ms, clock.count = ms, 0
	case clock.count == 1<<16-1:
		clock.ms, clock.count = clock.ms+1, 0
	default:
		clock.count++
	}
	ms, count := clock.ms, clock.count
	clock.Unlock()
	var id ID
	binary.BigEndian.PutUint64(id[:8], ms<<16|uint64(count))
	// crypto/rand.Read never fails since Go 1.24.
	rand.Read(id[8:14])
	return id
}

// At returns the least ID of a millisecond: all that were stamped with it or later sort behind.
func At(t time.Time) ID {
	var id ID
	binary.BigEndian.PutUint64(id[:8], uint64(max(0, t.UnixMilli()))<<16)
	return id
}

// Derive returns the ID that name always has within space: the time of space (so that it sorts near it), then a hash of
// both. It serves ids that must come out equal when a step is repeated.
func Derive(space ID, name string) ID {
	h := sha256.New()
	h.Write(space[:])
	h.Write([]byte(name))
	sum := h.Sum(nil)
	id := space
	copy(id[8:], sum[:8])
	return id
}

// Named returns the ID that a text chosen outside always has: a hash with a zero time, so that it never sorts among the
// ids made here.
func Named(space, name string) ID {
	h := sha256.New()
	h.Write([]byte(space))
	h.Write([]byte{0})
	h.Write([]byte(name))
	var id ID
	copy(id[6:], h.Sum(nil))
	return id
}

// WithAttempt returns the ID with its last 16 bits set to attempt; the rest names the same thing.
func (id ID) WithAttempt(attempt uint16) ID {
	binary.BigEndian.PutUint16(id[14:], attempt)
	return id
}

// Attempt returns the last 16 bits, 0 for an ID made by New.
func (id ID) Attempt() uint16 { return binary.BigEndian.Uint16(id[14:]) }

// Time returns the millisecond in which the ID was made; for Named ids 1970.
func (id ID) Time() time.Time {
	return time.UnixMilli(int64(binary.BigEndian.Uint64(id[:8]) >> 16))
}

// IsZero reports whether the ID means "none".
func (id ID) IsZero() bool { return id == ID{} }

// String returns the 26-character text form; texts sort as the IDs do.
func (id ID) String() string { return text.EncodeToString(id[:]) }

// Parse reads the text form. The error wraps ErrInvalid.
func Parse(s string) (ID, error) {
	var id ID
	if len(s) != TextSize {
		return id, fmt.Errorf("%w: %d characters, want %d", ErrInvalid, len(s), TextSize)
	}
	b, err := text.DecodeString(s)
	if err != nil {
		return id, fmt.Errorf("%w: %q", ErrInvalid, s)
	}
	copy(id[:], b)
	if id.String() != s { // unused low bits of the last character must be zero
		return ID{}, fmt.Errorf("%w: %q", ErrInvalid, s)
	}
	return id, nil
}

// FromBytes reads the 16-byte form. The error wraps ErrInvalid.
func FromBytes(b []byte) (ID, error) {
	var id ID
	if len(b) != Size {
		return id, fmt.Errorf("%w: %d bytes, want %d", ErrInvalid, len(b), Size)
	}
	copy(id[:], b)
	return id, nil
}

// MarshalText writes the text form; the zero ID is empty.
func (id ID) MarshalText() ([]byte, error) {
	if id.IsZero() {
		return []byte{}, nil
	}
	return []byte(id.String()), nil
}

// UnmarshalText reads what MarshalText wrote.
func (id *ID) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*id = ID{}
		return nil
	}
	v, err := Parse(string(b))
	if err != nil {
		return err
	}
	*id = v
	return nil
}

// PID is the number of an agent process: unique in the instance, never reused. 0 means "none".
type PID uint64

// String returns the decimal form, which is also the key of the process's neuron.
func (p PID) String() string { return strconv.FormatUint(uint64(p), 10) }

// ParsePID reads the decimal form. The error wraps ErrInvalid.
func ParsePID(s string) (PID, error) {
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%w: %q is no pid", ErrInvalid, s)
	}
	return PID(n), nil
}
