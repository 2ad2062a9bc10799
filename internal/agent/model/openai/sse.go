package openai

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
)

// Bounds of a stream in bytes: one event, and all of it.
const (
	maxEvent = 32 << 20
	maxTotal = 256 << 20
)

var errTooLarge = errors.New("the stream is too large")

// reader reads the data of server-sent events, or one JSON document as if it were the only event.
type reader struct {
	r     *bufio.Reader
	whole bool // a plain JSON body
	total int
	begun bool
	cr    bool // the last line ended in CR: an LF that follows belongs to it
}

func newReader(r io.Reader, contentType string) *reader {
	return &reader{r: bufio.NewReaderSize(r, 32<<10), whole: strings.HasPrefix(strings.ToLower(contentType), "application/json")}
}

// next returns the data of the next event that has any; comments, other fields and empty events are passed over. At a clean
// end it gives io.EOF, and with it what an event without its closing blank line held.
func (s *reader) next() ([]byte, error) {
	if s.whole {
		return s.document()
	}
	var data []byte
	some := false
	for {
		line, err := s.line()
		if err != nil && len(line) == 0 {
			return data, err
		}
		if !s.begun {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
			s.begun = true
		}
		if len(line) == 0 {
			if some && len(data) > 0 {
				return data, nil
			}
			data, some = nil, false
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		if string(name) != "data" {
			continue
		}
		if some {
			data = append(data, '\n')
		}
		some = true
		data = append(data, bytes.TrimPrefix(value, []byte(" "))...)
		if len(data) > maxEvent {
			return nil, errTooLarge
		}
	}
}

func (s *reader) document() ([]byte, error) {
	if s.begun {
		return nil, io.EOF
	}
	s.begun = true
	b, err := io.ReadAll(io.LimitReader(s.r, maxEvent+1))
	if len(b) > maxEvent {
		return nil, errTooLarge
	}
	if err == nil && len(b) == 0 {
		err = io.EOF
	}
	return b, err
}

// line returns one line without its end, which is LF, CR or CRLF. An error comes with what was read before it.
func (s *reader) line() ([]byte, error) {
	var line []byte
	for {
		if s.r.Buffered() == 0 {
			if _, err := s.r.Peek(1); err != nil {
				return line, err
			}
		}
		buf, _ := s.r.Peek(s.r.Buffered())
		if s.cr {
			s.cr = false
			if buf[0] == '\n' {
				if err := s.take(1); err != nil {
					return nil, err
				}
				continue
			}
		}
		i := bytes.IndexAny(buf, "\r\n")
		if i < 0 {
			line = append(line, buf...)
			if err := s.take(len(buf)); err != nil {
				return nil, err
			}
		} else {
			line = append(line, buf[:i]...)
			s.cr = buf[i] == '\r'
			return line, s.take(i + 1)
		}
		if len(line) > maxEvent {
			return nil, errTooLarge
		}
	}
}

func (s *reader) take(n int) error {
	// n bytes are buffered, so this cannot fail
	_, _ = s.r.Discard(n)
	if s.total += n; s.total > maxTotal {
		return errTooLarge
	}
	return nil
}
