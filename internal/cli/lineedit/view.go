package lineedit

import (
	"fmt"
	"strings"

	"github.com/clipperhouse/displaywidth"
)

// maxHints is how many rows of names are shown; tab is the width of a tab.
const (
	maxHints = 6
	tabWidth = 4
)

// Row is one row of a terminal.
type Row struct {
	Prompt string // in front
	Text   string // without control characters
	Hint   bool
}

// View is an editor's text as rows of a terminal, and the place of the cursor in them, from 0.
type View struct {
	Rows        []Row
	Row, Column int
}

// View returns how the text is shown on a terminal of a width and height in characters: with the prompts and what stands
// below the text. Where it does not fit it is the part around the cursor. No row fills the last column.
func (e *Editor) View(width, height int) View {
	width = max(width-1, displaywidth.String(e.o.Prompt)+2)
	v := View{}
	at := 0
	for i, line := range strings.Split(e.t.s, "\n") {
		p := e.o.Prompt
		if i > 0 {
			p = e.o.More
		}
		v.line(p, line, e.t.at-at, width)
		at += len(line) + 1
	}
	for _, h := range e.hints(width) {
		v.Rows = append(v.Rows, Row{Text: displaywidth.TruncateString(h, width, "…"), Hint: true})
	}
	if over := len(v.Rows) - max(height, 1); over > 0 {
		from := min(over, max(0, v.Row-height/2))
		v.Rows, v.Row = v.Rows[from:from+max(height, 1)], v.Row-from
	}
	return v
}

// line adds one line of the text. The cursor stands at its byte offset at, if that is in it.
func (v *View) line(prompt, line string, at, width int) {
	column, offset := displaywidth.String(prompt), 0
	row := Row{Prompt: prompt}
	var b strings.Builder
	add := func() {
		row.Text = b.String()
		v.Rows = append(v.Rows, row)
		row, column = Row{}, 0
		b.Reset()
	}
	for g := displaywidth.StringGraphemes(line); g.Next(); {
		s, w := g.Value(), g.Width()
		if s == "\t" {
			s, w = strings.Repeat(" ", tabWidth), tabWidth
		}
		if column+w > width {
			add()
		}
		next := offset + len(g.Value())
		if at >= offset && at < next {
			v.Row, v.Column = len(v.Rows), column
		}
		b.WriteString(s)
		column += w
		offset = next
	}
	if at == offset { // the last column is free for the cursor
		v.Row, v.Column = len(v.Rows), column
	}
	add()
}

// columns sets names side by side, in at most so many rows.
func columns(names []string, width, rows int) []string {
	if len(names) == 0 {
		return nil
	}
	widest := 0
	for _, n := range names {
		widest = max(widest, displaywidth.String(n)+2)
	}
	each := max(1, width/widest)
	left := len(names) - each*rows
	var lines []string
	for len(names) > 0 && len(lines) < rows {
		var b strings.Builder
		for _, n := range names[:min(each, len(names))] {
			b.WriteString(n + strings.Repeat(" ", widest-displaywidth.String(n)))
		}
		names = names[min(each, len(names)):]
		lines = append(lines, strings.TrimRight(b.String(), " "))
	}
	if left > 0 {
		lines = append(lines, fmt.Sprintf("… and %d more", left))
	}
	return lines
}
