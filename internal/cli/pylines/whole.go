package pylines

import (
	"slices"
	"strings"
)

// compound are the words that begin a statement with a block.
var compound = []string{
	"async", "case", "class", "def", "elif", "else", "except", "finally", "for", "if", "match", "try", "while", "with",
}

// Whole reports whether code that a person types line by line can run: nothing is open, and a block has been ended by an
// empty line. Code that can never be right is whole, so that python says what is wrong with it.
func Whole(code string) bool {
	s := Split(code)
	switch {
	case s.Broken:
		return true
	case s.Open:
		return false
	case len(s.Lines) == 0:
		return true
	}
	last := s.Lines[len(s.Lines)-1]
	if !last.indented() && !last.header() && !strings.HasPrefix(last.Text, "@") {
		return true
	}
	return endsEmpty(code)
}

// endsEmpty reports whether the last physical line of code is empty.
func endsEmpty(code string) bool {
	i := strings.LastIndexByte(code, '\n')
	return i >= 0 && strings.TrimSpace(code[i:]) == ""
}

func (l Line) indented() bool { return strings.TrimLeft(l.Text, " \t\f") != l.Text }

// header reports whether a line begins a block, with or without a part of it.
func (l Line) header() bool {
	word := strings.TrimSpace(l.Text)
	if i := strings.IndexFunc(word, func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') }); i >= 0 {
		word = word[:i]
	}
	if !l.colon || !slices.Contains(compound, word) {
		return false
	}
	return word != "match" && word != "case" || strings.HasSuffix(l.Text, ":") // else they are names
}

// tab is one step of indentation.
const tab = 4

// leaves are the words after which a block goes on only one step further out.
var leaves = []string{"break", "continue", "pass", "raise", "return"}

// Indent returns how many spaces the line after code is indented with.
func Indent(code string) int {
	s := Split(code)
	if s.Open || s.Broken {
		line := code[strings.LastIndexByte(code, '\n')+1:]
		return width(line)
	}
	if len(s.Lines) == 0 {
		return 0
	}
	last := s.Lines[len(s.Lines)-1]
	first, _, _ := strings.Cut(strings.TrimSpace(last.Text), " ")
	n := width(last.Text)
	switch {
	case last.header() && strings.HasSuffix(last.Text, ":"):
		n += tab
	case slices.Contains(leaves, first):
		n = max(0, n-tab)
	}
	return n
}

// width is how far a line is indented.
func width(line string) int {
	n := 0
	for _, r := range line {
		switch r {
		case ' ':
			n++
		case '\t':
			n += 8 - n%8
		default:
			return n
		}
	}
	return n
}

// Magic returns the first logical line that is a command of IPython and not python (`%name …`, `!command`, `?name`, `name?`),
// and whether there is one.
func Magic(code string) (Line, bool) {
	for _, l := range Split(code).Lines {
		text := strings.TrimSpace(l.Text)
		if strings.HasPrefix(text, "%") || strings.HasPrefix(text, "!") || strings.HasPrefix(text, "?") || strings.HasSuffix(text, "?") {
			return l, true
		}
	}
	return Line{}, false
}
