package lineedit

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/clipperhouse/displaywidth"
)

// text is what is edited. The cursor stands between two characters as a person sees them: at is a byte offset.
type text struct {
	s  string
	at int
}

// lineStart and lineEnd are the bounds of the line of the cursor.
func (t *text) lineStart() int { return strings.LastIndexByte(t.s[:t.at], '\n') + 1 }

func (t *text) lineEnd() int {
	if i := strings.IndexByte(t.s[t.at:], '\n'); i >= 0 {
		return t.at + i
	}
	return len(t.s)
}

func (t *text) insert(s string) {
	t.s = t.s[:t.at] + s + t.s[t.at:]
	t.at += len(s)
}

// cut takes out what lies between two offsets, and leaves the cursor there.
func (t *text) cut(from, to int) (taken string) {
	taken = t.s[from:to]
	t.s, t.at = t.s[:from]+t.s[to:], from
	return taken
}

// left and right are the offsets of the next place of the cursor, in whatever line.
func (t *text) left() int {
	start := t.lineStart()
	if t.at == start {
		return max(0, t.at-1)
	}
	at := start
	for g := displaywidth.StringGraphemes(t.s[start:t.at]); g.Next(); {
		if next := at + len(g.Value()); next < t.at {
			at = next
		}
	}
	return at
}

func (t *text) right() int {
	end := t.lineEnd()
	if t.at == end {
		return min(len(t.s), t.at+1)
	}
	g := displaywidth.StringGraphemes(t.s[t.at:end])
	g.Next()
	return t.at + len(g.Value())
}

func wordly(r rune) bool {
	return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r)
}

// wordLeft and wordRight are the offsets of the beginning of this word or the one before, and the end of this or the next.
func (t *text) wordLeft() int {
	before := strings.TrimRightFunc(t.s[:t.at], func(r rune) bool { return !wordly(r) })
	return len(strings.TrimRightFunc(before, wordly))
}

func (t *text) wordRight() int {
	after := strings.TrimLeftFunc(t.s[t.at:], func(r rune) bool { return !wordly(r) })
	return len(t.s) - len(strings.TrimLeftFunc(after, wordly))
}

// backspace takes out what stands before the cursor: within an indentation one step of it.
func (t *text) backspace(step int) {
	start := t.lineStart()
	if indent := t.s[start:t.at]; indent != "" && strings.Trim(indent, " ") == "" {
		t.cut(t.at-((len(indent)-1)%step+1), t.at)
		return
	}
	t.cut(t.left(), t.at)
}

// vertical moves the cursor by a line, to the same column where there is one; it is false at the first or last line.
func (t *text) vertical(down bool) bool {
	start, end := t.lineStart(), t.lineEnd()
	column := utf8.RuneCountInString(t.s[start:t.at])
	if down && end == len(t.s) || !down && start == 0 {
		return false
	}
	if down {
		t.at = end + 1
	} else {
		t.at = start - 1
		t.at = t.lineStart()
	}
	for end = t.lineEnd(); column > 0 && t.at < end; {
		next := t.right()
		column -= utf8.RuneCountInString(t.s[t.at:next])
		t.at = next
	}
	return true
}
