package lineedit

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Options say what an Editor edits.
type Options struct {
	// Prompt stands before the first line, More before the others. Both are of one width, without control characters.
	Prompt, More string
	// Whole reports whether a text can be taken as it is.
	Whole func(text string) bool
	// Indent returns how many spaces a new line after a text begins with; Step is one step of it.
	Indent func(before string) int
	Step   int
	// Complete returns what may stand in the text from start to the cursor, both in characters. It may take a moment.
	Complete func(text string, cursor int) (start int, names []string)
	// History are the texts before, the oldest first.
	History []string
}

// Result is what a key has come to.
type Result int

// The results.
const (
	Edited      Result = iota
	Accepted           // Text has what was accepted
	Interrupted        // the text is given up
	Ended              // nothing more will come
	Suspended
	Cleared // the screen is to be empty
)

// Editor edits one text after the other. It is not safe for concurrent use.
type Editor struct {
	o      Options
	t      text
	killed string
	hint   []string // lines below the text, until the next key
	recall int      // which of the history is shown; its length: the draft
	draft  string   // what was there before the history was shown
	search *search
}

// search is a search in the history.
type search struct {
	query  string
	failed bool
	before text
	recall int
}

// New returns an editor with an empty text.
func New(o Options) *Editor {
	e := &Editor{o: o}
	e.Reset()
	return e
}

// Text is what stands in the editor.
func (e *Editor) Text() string { return e.t.s }

// Reset empties the text.
func (e *Editor) Reset() {
	e.t, e.hint, e.search, e.draft, e.recall = text{}, nil, nil, "", len(e.o.History)
}

// Remember adds a text to the history.
func (e *Editor) Remember(s string) {
	e.o.History = append(e.o.History, s)
	e.recall = len(e.o.History)
}

// Press takes a key.
func (e *Editor) Press(k Key) Result {
	e.hint = nil
	if e.search != nil && e.searched(k) {
		return Edited
	}
	switch k.Kind {
	case Text, Paste:
		if len(e.t.s)+len(k.Text) <= MaxPaste {
			e.t.insert(k.Text)
		}
	case Enter:
		return e.enter()
	case NewLine:
		e.newLine()
	case Tab:
		e.tab()
	case Interrupt:
		e.t.at = len(e.t.s)
		return Interrupted
	case Leave:
		if e.t.s == "" {
			return Ended
		}
		e.t.cut(e.t.at, e.t.right())
	case Suspend:
		return Suspended
	case Clear:
		return Cleared
	case Search:
		e.search = &search{before: e.t, recall: e.recall}
	default:
		e.edit(k.Kind)
	}
	return Edited
}

// edit does what moves the cursor or takes something out.
func (e *Editor) edit(k Kind) {
	t := &e.t
	switch k {
	case Left:
		t.at = t.left()
	case Right:
		t.at = t.right()
	case WordLeft:
		t.at = t.wordLeft()
	case WordRight:
		t.at = t.wordRight()
	case Home:
		t.at = t.lineStart()
	case End:
		t.at = t.lineEnd()
	case Up:
		if !t.vertical(false) {
			e.show(e.recall - 1)
		}
	case Down:
		if !t.vertical(true) {
			e.show(e.recall + 1)
		}
	case Backspace:
		t.backspace(e.o.Step)
	case Delete:
		t.cut(t.at, t.right())
	case KillEnd:
		end := t.lineEnd()
		if end == t.at {
			end = t.right()
		}
		e.killed = t.cut(t.at, end)
	case KillStart:
		e.killed = t.cut(t.lineStart(), t.at)
	case KillWord:
		e.killed = t.cut(t.wordLeft(), t.at)
	case KillNextWord:
		e.killed = t.cut(t.at, t.wordRight())
	case Yank:
		t.insert(e.killed)
	}
}

// enter accepts a text that is whole, unless the cursor stands in an earlier line of several.
func (e *Editor) enter() Result {
	if e.t.lineEnd() == len(e.t.s) && e.o.Whole(e.t.s) {
		e.t.at = len(e.t.s)
		return Accepted
	}
	e.newLine()
	return Edited
}

func (e *Editor) newLine() {
	before := e.t.s[:e.t.at]
	if line := before[e.t.lineStart():]; line != "" && strings.TrimSpace(line) == "" {
		e.t.cut(e.t.lineStart(), e.t.at) // no spaces are left behind
		before = e.t.s[:e.t.at]
	}
	e.t.insert("\n" + strings.Repeat(" ", e.o.Indent(before)))
}

// show shows one text of the history, or what was there before.
func (e *Editor) show(i int) {
	if i < 0 || i > len(e.o.History) {
		return
	}
	if e.recall == len(e.o.History) {
		e.draft = e.t.s
	}
	e.recall, e.t.s = i, e.draft
	if i < len(e.o.History) {
		e.t.s = e.o.History[i]
	}
	e.t.at = len(e.t.s)
}

// tab indents at the beginning of a line, and completes elsewhere.
func (e *Editor) tab() {
	start := e.t.lineStart()
	line := e.t.s[start:e.t.at]
	if strings.TrimSpace(line) == "" {
		e.t.insert(strings.Repeat(" ", e.o.Step-len(line)%e.o.Step))
		return
	}
	cursor := utf8.RuneCountInString(e.t.s[:e.t.at])
	from, names := e.o.Complete(e.t.s, cursor)
	if len(names) == 0 || from < 0 || from > cursor {
		return
	}
	begun := string([]rune(e.t.s[:e.t.at])[from:])
	common := prefix(names)
	if strings.HasPrefix(common, begun) {
		e.t.insert(common[len(begun):])
	}
	if len(names) > 1 && common == begun {
		e.hint = names
	}
}

// prefix is what all names begin with.
func prefix(names []string) string {
	common := names[0]
	for _, n := range names[1:] {
		for !strings.HasPrefix(n, common) {
			_, size := utf8.DecodeLastRuneInString(common)
			common = common[:len(common)-size]
		}
	}
	return common
}

// searched takes a key of a search; false: the search has ended, and the key means what it always does.
func (e *Editor) searched(k Key) bool {
	s := e.search
	switch k.Kind {
	case Text:
		s.query += k.Text
		e.find(e.recall, true)
	case Backspace:
		_, size := utf8.DecodeLastRuneInString(s.query)
		s.query = s.query[:len(s.query)-size]
		e.t, e.recall, s.failed = s.before, s.recall, false
		if s.query != "" {
			e.find(len(e.o.History)-1, true)
		}
	case Search:
		e.find(e.recall-1, true)
	case SearchBack:
		e.find(e.recall+1, false)
	case Cancel, Interrupt:
		e.t, e.recall, e.search = s.before, s.recall, nil
	case Enter:
		e.search, e.t.at = nil, len(e.t.s) // what was found is meant as it is
		return false
	default:
		e.search = nil
		return false
	}
	return true
}

// find shows the next text of the history from i on that has the query in it.
func (e *Editor) find(i int, older bool) {
	s := e.search
	if s.query == "" {
		return
	}
	step := 1
	if older {
		step = -1
		i = min(i, len(e.o.History)-1)
	}
	for ; i >= 0 && i < len(e.o.History); i += step {
		if at := strings.Index(e.o.History[i], s.query); at >= 0 {
			e.show(i)
			e.t.at, s.failed = at, false
			return
		}
	}
	s.failed = true
}

// hints are the lines below the text, within a width in columns.
func (e *Editor) hints(width int) []string {
	if s := e.search; s != nil {
		line := "search: " + s.query
		if s.failed {
			line += "   (nothing)"
		}
		return []string{line}
	}
	return columns(slices.Clone(e.hint), width, maxHints)
}
