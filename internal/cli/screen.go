package cli

import (
	"bytes"
	"io"
	"strings"
	"unicode"
)

// ANSI sequences, used only on a terminal.
const (
	ansiDim   = "\x1b[2m"
	ansiBold  = "\x1b[1m"
	ansiRed   = "\x1b[31m"
	ansiReset = "\x1b[0m"
	ansiErase = "\r\x1b[K" // the line where the cursor stands
)

// screen writes blocks of lines, with or without colour. It knows whether it stands at the start of a line. It is not safe
// for concurrent use.
type screen struct {
	out    io.Writer
	colour bool
	buf    bytes.Buffer
	inLine bool // the last line is not ended
	gap    bool // an empty line was written last, or nothing yet
}

func newScreen(out io.Writer, colour bool) *screen {
	return &screen{out: out, colour: colour, gap: true}
}

// flush hands everything written to the output in one piece.
func (s *screen) flush() error {
	if s.buf.Len() == 0 {
		return nil
	}
	_, err := s.out.Write(s.buf.Bytes())
	s.buf.Reset()
	return err
}

// block begins a new block of lines: an empty line stands before it, unless it is the first.
func (s *screen) block() {
	s.endLine()
	if !s.gap {
		s.buf.WriteByte('\n')
		s.gap = true
	}
}

func (s *screen) endLine() {
	if s.inLine {
		s.buf.WriteByte('\n')
		s.inLine = false
	}
}

// write adds text in a style, with indent at the start of each of its lines. The text has no control characters but
// newlines and tabs.
func (s *screen) write(style, indent, text string) {
	for text != "" {
		line, rest, ended := strings.Cut(text, "\n")
		if line != "" {
			if !s.inLine {
				s.styled(style, indent)
			}
			s.styled(style, line)
			s.inLine, s.gap = true, false
		}
		if ended {
			if line == "" && !s.inLine {
				mark := strings.TrimRight(indent, " ")
				s.styled(style, mark)
				s.gap = mark == ""
			}
			s.buf.WriteByte('\n')
			s.inLine = false
		}
		text = rest
	}
}

func (s *screen) styled(style, text string) {
	if s.colour && style != "" && strings.TrimSpace(text) != "" {
		s.buf.WriteString(style + text + ansiReset)
		return
	}
	s.buf.WriteString(text)
}

// line writes one whole line, ending an open one before it.
func (s *screen) line(style, indent, text string) {
	s.endLine()
	s.write(style, indent, text+"\n")
}

// transient writes text over the line where the cursor stands, and leaves the cursor there. Only for terminals, at the start
// of a line.
func (s *screen) transient(text string) {
	s.buf.WriteString(ansiErase)
	s.styled(ansiDim, text)
}

// cleaner takes out of a stream what would move the cursor, change colours or speak to the terminal: models and cells must
// not do that. A carriage return becomes the end of a line. The zero value is ready; sequences may be cut anywhere between
// two calls.
type cleaner struct {
	state cleanState
	back  bool
}

type cleanState int

const (
	cleanText    cleanState = iota
	cleanEscape             // after ESC
	cleanControl            // in a control sequence, to its final byte
	cleanString             // in a string for the terminal (title, clipboard …), to BEL or ESC \
)

func (c *cleaner) clean(text string) string {
	var b strings.Builder
	for _, r := range text {
		if c.back && r != '\n' {
			b.WriteByte('\n')
		}
		c.back = false
		switch c.state {
		case cleanEscape:
			switch {
			case r == '[':
				c.state = cleanControl
			case strings.ContainsRune("]P^_X", r):
				c.state = cleanString
			case r >= 0x20 && r <= 0x2f: // more of the sequence follows
			default:
				c.state = cleanText
			}
		case cleanControl:
			if r >= 0x40 && r <= 0x7e {
				c.state = cleanText
			} else if r < 0x20 {
				c.state = cleanText
				c.text(&b, r)
			}
		case cleanString:
			switch r {
			case '\a', 0x9c:
				c.state = cleanText
			case 0x1b:
				c.state = cleanEscape // its backslash ends it
			case '\n':
				c.state = cleanText // no such string holds one: show what follows
				b.WriteByte('\n')
			}
		default:
			c.text(&b, r)
		}
	}
	return b.String()
}

func (c *cleaner) text(b *strings.Builder, r rune) {
	switch {
	case r == 0x1b:
		c.state = cleanEscape
	case r == '\r':
		c.back = true
	case r == '\n' || r == '\t':
		b.WriteRune(r)
	case unicode.IsControl(r), r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069: // and those that turn the direction
	default:
		b.WriteRune(r)
	}
}

// clean cleans one whole text.
func clean(text string) string { return new(cleaner).clean(text) }
