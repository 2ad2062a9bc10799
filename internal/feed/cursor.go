package feed

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrCursor reports a text that is no cursor.
var ErrCursor = errors.New("invalid cursor")

// Cursor says how far a follower has come: the last sequence it saw, and the generation of the database that counted it.
// The zero Cursor is before the first item of any generation.
type Cursor struct {
	Generation string // no dot, at most 64 bytes
	Seq        uint64
}

// String returns generation.sequence, "" for the zero Cursor.
func (c Cursor) String() string {
	if c == (Cursor{}) {
		return ""
	}
	return c.Generation + "." + strconv.FormatUint(c.Seq, 10)
}

// ParseCursor reads what String wrote. The error wraps ErrCursor.
func ParseCursor(s string) (Cursor, error) {
	if s == "" {
		return Cursor{}, nil
	}
	generation, seq, ok := strings.Cut(s, ".")
	n, err := strconv.ParseUint(seq, 10, 63)
	if !ok || err != nil || generation == "" || len(generation) > 64 || strconv.FormatUint(n, 10) != seq {
		return Cursor{}, fmt.Errorf("%w: %.80q", ErrCursor, s)
	}
	return Cursor{generation, n}, nil
}
