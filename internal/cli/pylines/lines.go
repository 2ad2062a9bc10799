package pylines

import "strings"

// Line is a logical line of code: it may go on over several physical ones, within brackets, strings or after backslashes.
type Line struct {
	// Number is that of its first physical line, from 1.
	Number int
	// Text is what it says, with its indentation and without comments.
	Text string
	// colon says that a colon stands in it outside of brackets and strings.
	colon bool
}

// State is what the end of a piece of code leaves open.
type State struct {
	// Lines are its logical lines; empty ones and those that are only a comment are left out.
	Lines []Line
	// Open says that a bracket or a string of three quotes is not closed, or that a backslash ends the code.
	Open bool
	// Broken says that the code cannot become right by what follows: a string of one line does not end in it, or a bracket
	// closes that was not opened.
	Broken bool
}

const quotes = `"'`

// scanner goes over code character by character.
type scanner struct {
	code   string
	at     int
	number int // of the physical line
	depth  []byte
	line   Line
	text   []byte // of the line
	state  State
}

// Split takes code apart into its logical lines.
func Split(code string) State {
	s := scanner{code: code, number: 1}
	s.begin()
	for s.at < len(s.code) && !s.state.Broken {
		s.step()
	}
	s.end()
	s.state.Open = s.state.Open || len(s.depth) > 0
	return s.state
}

func (s *scanner) begin() { s.line, s.text = Line{Number: s.number}, s.text[:0] }

func (s *scanner) end() {
	if s.line.Text = strings.TrimRight(string(s.text), " \t\f\r\n"); s.line.Text != "" {
		s.state.Lines = append(s.state.Lines, s.line)
	}
}

func (s *scanner) take(n int) {
	s.text = append(s.text, s.code[s.at:s.at+n]...)
	s.number += strings.Count(s.code[s.at:s.at+n], "\n")
	s.at += n
}

// closing is what closes a bracket.
var closing = map[byte]byte{'(': ')', '[': ']', '{': '}'}

func (s *scanner) step() {
	c := s.code[s.at]
	switch {
	case c == '#':
		if end := strings.IndexByte(s.code[s.at:], '\n'); end >= 0 {
			s.at += end
		} else {
			s.at = len(s.code)
		}
	case c == '\n' && len(s.depth) == 0:
		s.end()
		s.at++
		s.number++
		s.begin()
	case c == '\\':
		s.backslash()
	case strings.IndexByte(quotes, c) >= 0:
		s.quoted(c)
	case closing[c] != 0:
		s.depth = append(s.depth, closing[c])
		s.take(1)
	case c == ')' || c == ']' || c == '}':
		if len(s.depth) == 0 || s.depth[len(s.depth)-1] != c {
			s.state.Broken = true
		} else {
			s.depth = s.depth[:len(s.depth)-1]
		}
		s.take(1)
	default:
		s.line.colon = s.line.colon || c == ':' && len(s.depth) == 0
		s.take(1)
	}
}

// backslash joins the next physical line to this one.
func (s *scanner) backslash() {
	switch rest := s.code[s.at+1:]; {
	case rest == "":
		s.state.Open = true
		s.take(1)
	case rest[0] == '\n':
		s.take(2)
	default: // python does not take it; neither does anything end here
		s.take(1)
	}
}

// quoted passes over a string. What stands before its quotes is part of the line and tells nothing that is needed here: also
// in a raw string a backslash takes the quote after it along.
func (s *scanner) quoted(quote byte) {
	long := strings.HasPrefix(s.code[s.at:], strings.Repeat(string(quote), 3))
	end := string(quote)
	if long {
		end = strings.Repeat(end, 3)
	}
	s.take(len(end))
	for s.at < len(s.code) {
		switch rest := s.code[s.at:]; {
		case strings.HasPrefix(rest, end):
			s.take(len(end))
			return
		case rest[0] == '\\':
			if rest == "\\" {
				s.state.Open = true
				s.take(1)
				return
			}
			s.take(min(2, len(rest)))
		case rest[0] == '\n' && !long:
			s.state.Broken = true
			return
		default:
			s.take(1)
		}
	}
	if long {
		s.state.Open = true
	} else {
		s.state.Broken = true
	}
}
