package frame

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"soma/internal/pykernel"
)

// Refusals of a unit. After any of them the connection is cut; a clean end between units is io.EOF.
var (
	ErrTooLarge  = errors.New("too_large")
	ErrEmpty     = errors.New("empty")
	ErrTruncated = errors.New("truncated")
	ErrNotUTF8   = errors.New("not_utf8")
	ErrNotJSON   = errors.New("not_json")
	ErrNotObject = errors.New("not_object")
	ErrMalformed = errors.New("malformed")
)

const headerSize = 4

// Read reads one unit and returns its JSON object. The length is refused before anything is allocated for it, and memory
// grows with the bytes that arrive, not with what the header promises. Errors: the refusals above, wrapped; io.EOF; those
// of r.
func Read(r io.Reader) ([]byte, error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, fmt.Errorf("cannot read a header: %w", ErrTruncated)
		}
		return nil, err
	}
	n := binary.BigEndian.Uint32(header[:])
	switch {
	case n > pykernel.MaxFrame:
		return nil, fmt.Errorf("cannot read a unit of %d bytes: %w", n, ErrTooLarge)
	case n == 0:
		return nil, fmt.Errorf("cannot read a unit: %w", ErrEmpty)
	}
	body, err := readBody(r, int(n))
	if err != nil {
		return nil, err
	}
	if !utf8.Valid(body) {
		return nil, fmt.Errorf("cannot read a unit: %w", ErrNotUTF8)
	}
	if !json.Valid(body) {
		return nil, fmt.Errorf("cannot read a unit: %w", ErrNotJSON)
	}
	if first := bytes.TrimLeft(body, " \t\r\n"); first[0] != '{' {
		return nil, fmt.Errorf("cannot read a unit: %w", ErrNotObject)
	}
	return body, nil
}

// readBody reads n bytes. Up to a chunk is allocated at once, more only as it comes.
func readBody(r io.Reader, n int) ([]byte, error) {
	const chunk = 1 << 20
	if n <= chunk {
		body := make([]byte, n)
		_, err := io.ReadFull(r, body)
		return body, truncated(err)
	}
	var b bytes.Buffer
	got, err := io.CopyN(&b, r, int64(n))
	if err == nil && got < int64(n) {
		err = io.ErrUnexpectedEOF
	}
	return b.Bytes(), truncated(err)
}

func truncated(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("cannot read a body: %w", ErrTruncated)
	}
	return err
}

// Append appends one unit with the given JSON object to b, for a single write. The error is ErrTooLarge, wrapped.
func Append(b, object []byte) ([]byte, error) {
	if len(object) > pykernel.MaxFrame {
		return b, fmt.Errorf("cannot write a unit of %d bytes: %w", len(object), ErrTooLarge)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(object)))
	return append(b, object...), nil
}
