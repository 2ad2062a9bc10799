package lineedit

import (
	"fmt"
	"io"
	"strings"

	"github.com/clipperhouse/displaywidth"
)

// Screen shows views on a terminal, one over the other. It begins at the start of a line. Its errors are the writer's.
type Screen interface {
	// Draw shows a view in the place of the one before.
	Draw(v View) error
	// Leave shows a view, a mark behind its text, and ends the line: what is written next stands below it.
	Leave(v View, mark string) error
	// Clear empties the terminal.
	Clear() error
	// Resized says that the terminal is that wide now, and has set what was shown anew; Draw comes next.
	Resized(width int)
}

// NewScreen returns a screen that moves about on a terminal, with or without colours.
func NewScreen(out io.Writer, colour bool) Screen { return &full{out: out, colour: colour} }

// NewPlain returns a screen for terminals that can only write on: the line of the cursor is shown, and again after a change
// that is not at its end.
func NewPlain(out io.Writer) Screen { return &plain{out: out} }

type full struct {
	out    io.Writer
	colour bool
	shown  View
	row    int // of the cursor in what is shown
}

func (f *full) Draw(v View) error {
	var b strings.Builder
	f.draw(&b, v)
	_, err := io.WriteString(f.out, b.String())
	return err
}

func (f *full) draw(b *strings.Builder, v View) {
	b.WriteString("\x1b[?25l\r")
	up(b, f.row)
	for i, r := range v.Rows {
		if i > 0 {
			b.WriteString("\n")
		}
		b.WriteString(f.styled("\x1b[1m", r.Prompt))
		if r.Hint {
			b.WriteString(f.styled("\x1b[2m", r.Text))
		} else {
			b.WriteString(r.Text)
		}
		b.WriteString("\x1b[K")
	}
	b.WriteString("\x1b[J\r")
	up(b, len(v.Rows)-1-v.Row)
	if v.Column > 0 {
		fmt.Fprintf(b, "\x1b[%dC", v.Column)
	}
	b.WriteString("\x1b[?25h")
	f.row, f.shown = v.Row, v
}

func (f *full) Resized(width int) {
	if f.row == 0 && f.shown.Column < width {
		return
	}
	f.row = f.shown.Column / width
	for _, r := range f.shown.Rows[:f.shown.Row] {
		f.row += max(0, displaywidth.String(r.Prompt)+displaywidth.String(r.Text)-1)/width + 1
	}
}

func (f *full) styled(style, text string) string {
	if !f.colour || text == "" {
		return text
	}
	return style + text + "\x1b[m"
}

func up(b *strings.Builder, n int) {
	if n > 0 {
		fmt.Fprintf(b, "\x1b[%dA", n)
	}
}

func (f *full) Leave(v View, mark string) error {
	var b strings.Builder
	f.draw(&b, v)
	if n := len(v.Rows) - 1 - v.Row; n > 0 {
		fmt.Fprintf(&b, "\r\x1b[%dB", n)
	}
	b.WriteString(mark + "\n")
	f.row, f.shown = 0, View{}
	_, err := io.WriteString(f.out, b.String())
	return err
}

func (f *full) Clear() error {
	f.row, f.shown = 0, View{}
	_, err := io.WriteString(f.out, "\x1b[H\x1b[2J")
	return err
}

type plain struct {
	out   io.Writer
	shown string // of the last line
	row   int
}

func (p *plain) Draw(v View) error {
	var b strings.Builder
	p.draw(&b, v)
	_, err := io.WriteString(p.out, b.String())
	return err
}

func (p *plain) draw(b *strings.Builder, v View) {
	for p.row < v.Row {
		p.line(b, v.Rows[p.row])
		p.row++
		p.shown = ""
		b.WriteString("\n")
	}
	if v.Row < p.row {
		p.row, p.shown = v.Row, again
	}
	p.line(b, v.Rows[v.Row])
	for _, r := range v.Rows[v.Row+1:] {
		if r.Hint {
			b.WriteString("\n" + r.Text)
			p.shown = again
		}
	}
}

// again is no beginning of a line.
const again = "\x00"

// line goes from what is shown of a line to what it is now.
func (p *plain) line(b *strings.Builder, r Row) {
	line := r.Prompt + r.Text
	switch {
	case strings.HasPrefix(line, p.shown):
		b.WriteString(line[len(p.shown):])
	case strings.HasPrefix(p.shown, line):
		b.WriteString(strings.Repeat("\b \b", displaywidth.String(p.shown[len(line):])))
	default:
		b.WriteString("\n" + line)
	}
	p.shown = line
}

func (p *plain) Leave(v View, mark string) error {
	var b strings.Builder
	p.draw(&b, v)
	b.WriteString(mark + "\n")
	p.shown, p.row = "", 0
	_, err := io.WriteString(p.out, b.String())
	return err
}

func (p *plain) Clear() error { return nil }

func (p *plain) Resized(int) {}
