package neuron

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxIDBytes bounds the text form of an ID.
const MaxIDBytes = 256

// ErrInvalidID reports an identity that is empty, too long or malformed.
var ErrInvalidID = errors.New("invalid neuron id")

// ID names a neuron. It is comparable; the zero ID stands for "outside".
type ID struct{ Owner, Kind, Key string }

// ParseID reads the text form owner/kind/key. The error wraps ErrInvalidID.
func ParseID(s string) (ID, error) {
	parts := strings.Split(s, "/")
	if len(parts) != 3 {
		return ID{}, fmt.Errorf("%w: %q is not owner/kind/key", ErrInvalidID, s)
	}
	id := ID{parts[0], parts[1], parts[2]}
	return id, id.Check()
}

// Check reports why id cannot name a neuron. The error wraps ErrInvalidID.
func (id ID) Check() error {
	for _, p := range [...]string{id.Owner, id.Kind, id.Key} {
		if p == "" {
			return fmt.Errorf("%w: %q has an empty part", ErrInvalidID, id.String())
		}
		if strings.IndexByte(p, '/') >= 0 || strings.IndexByte(p, 0) >= 0 {
			return fmt.Errorf("%w: part %q holds a slash or a zero byte", ErrInvalidID, p)
		}
		if !utf8.ValidString(p) {
			return fmt.Errorf("%w: part %q is no UTF-8", ErrInvalidID, p)
		}
	}
	if n := len(id.Owner) + len(id.Kind) + len(id.Key) + 2; n > MaxIDBytes {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrInvalidID, n, MaxIDBytes)
	}
	return nil
}

// IsZero reports whether id stands for "outside".
func (id ID) IsZero() bool { return id == ID{} }

// String returns owner/kind/key, or "" for the zero ID.
func (id ID) String() string {
	if id.IsZero() {
		return ""
	}
	return id.Owner + "/" + id.Kind + "/" + id.Key
}

// MarshalText writes the text form.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads what MarshalText wrote; the empty text is the zero ID.
func (id *ID) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*id = ID{}
		return nil
	}
	v, err := ParseID(string(b))
	if err != nil {
		return err
	}
	*id = v
	return nil
}
