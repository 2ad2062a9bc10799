package cli

import (
	"bytes"
	"io"
	"strings"
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
