package lineedit

import (
	"slices"
	"strings"
	"testing"

	"github.com/clipperhouse/displaywidth"
	"pgregory.net/rapid"
)

func options(history ...string) Options {
	return Options{
		Prompt: ">>> ", More: "... ", Step: 4, History: history,
		Whole: func(s string) bool {
			return !strings.Contains(s, ":") || strings.HasSuffix(strings.TrimRight(s, " "), "\n")
		},
		Indent: func(before string) int {
			if strings.HasSuffix(before, ":") {
				return 4
			}
			return 0
		},
		Complete: func(text string, cursor int) (int, []string) {
			if strings.HasPrefix(text, "é.") {
				return 2, []string{"append", "apply"}
			}
			return cursor - 1, []string{"alpha"}
		},
	}
}

// typed presses what a terminal sends, and returns the text with the cursor as "|", and the last result.
func typed(e *Editor, bytes string) (string, Result) {
	var d Decoder
	r := Edited
	for _, k := range d.Feed([]byte(bytes)) {
		r = e.Press(k)
	}
	return e.t.s[:e.t.at] + "|" + e.t.s[e.t.at:], r
}

func TestEditing(t *testing.T) {
	const left, right, up, down = "\x1b[D", "\x1b[C", "\x1b[A", "\x1b[B"
	for _, c := range []struct {
		keys, want string
		result     Result
	}{
		{"ab" + left + "c", "ac|b", Edited},
		{"é漢" + left + left + right + "x", "éx|漢", Edited},
		{"e\u0301" + left + "x", "x|e\u0301", Edited}, // one character of two runes
		{"👩‍🚀" + left + "x", "x|👩‍🚀", Edited},
		{"👩‍🚀\x7f", "|", Edited},
		{"abc\x01\x04\x1b[3~", "|c", Edited},
		{"foo.bar baz\x17\x17", "foo.|", Edited},
		{"foo bar\x1bb\x1bbX\x1bfY", "XfooY| bar", Edited},
		{"foo bar\x01\x1bd", "| bar", Edited},
		{"foo bar" + left + "\x15\x05\x19", "rfoo ba|", Edited},
		{"ab\x01\x0b\x19\x19", "abab|", Edited},
		{"x = 1\r", "x = 1|", Accepted},
		{"x = 1" + left + "\r", "x = 1|", Accepted},
		{"if x:\r", "if x:\n    |", Edited},
		{"if x:\ry\r\r", "if x:\n    y\n|", Accepted},
		{"if x:\r\r", "if x:\n    |", Accepted},
		{"if x:\r\x7f", "if x:\n|", Edited},
		{"if x:\r  \x7f\x7f", "if x:\n|", Edited},
		{"if x:\ry" + up, "if x:|\n    y", Edited},
		{"if x:\ry" + up + left + left + down + "z", "if x:\n   z| y", Edited},
		{"a:\rb" + up + "\x01\r", "\n|a:\n    b", Edited},
		{"a\x1b\rb", "a\nb|", Edited},
		{"\x1b[200~if x:\r\n    y\r\nz\x1b[201~", "if x:\n    y\nz|", Edited},
		{"x\x03", "x|", Interrupted},
		{"\x04", "|", Ended},
		{"x\x04", "x|", Edited},
		{"\x1a", "|", Suspended},
		{"\x0c", "|", Cleared},
		{"\t", "    |", Edited},
		{"  \t", "    |", Edited},
		{"x = a\t", "x = alpha|", Edited},
		{"é.\t", "é.app|", Edited},
	} {
		e := New(options())
		got, r := typed(e, c.keys)
		if got != c.want || r != c.result {
			t.Errorf("%q: %q and %d, want %q and %d", c.keys, got, r, c.want, c.result)
		}
	}
}

func TestHistory(t *testing.T) {
	const up, down = "\x1b[A", "\x1b[B"
	e := New(options("one", "two:\n  2", "three"))
	for _, c := range []struct{ keys, want string }{
		{"x" + up, "three|"},
		{up, "two:\n  2|"},
		{up, "two|:\n  2"},
		{up, "one|"},
		{up, "one|"},
		{down, "two:\n  2|"},
		{down + down, "x|"},
		{down, "x|"},
		{"\x12t", "|three"},
		{"wo", "|two:\n  2"},
		{"\x07", "x|"},
		{"\x12o\x12", "|one"},
		{"\x13", "tw|o:\n  2"},
		{"zzz", "tw|o:\n  2"},
		{"\x7f\x7f\x7f", "tw|o:\n  2"},
		{"\x05!", "two:!|\n  2"},
	} {
		if got, _ := typed(e, c.keys); got != c.want {
			t.Errorf("%q: %q, want %q", c.keys, got, c.want)
		}
	}
	e.Reset()
	e.Remember("four")
	if got, r := typed(e, "\x12ou\r"); got != "four|" || r != Accepted {
		t.Errorf("%q, %d", got, r)
	}
	e.Reset()
	e.Remember("five:\n  5\n")
	if got, r := typed(e, "\x12five\r"); got != "five:\n  5\n|" || r != Accepted {
		t.Errorf("a block that was found: %q, %d", got, r)
	}
}

// terminal shows what it is sent: rows of characters and a cursor.
type terminal struct {
	t           *testing.T
	rows        [][]string
	row, column int
}

func (v *terminal) Write(b []byte) (int, error) {
	s := string(b)
	for s != "" {
		if rest, ok := strings.CutPrefix(s, "\x1b["); ok {
			i := strings.IndexFunc(rest, func(r rune) bool { return r >= '@' && r <= '~' })
			v.control(rest[:i], rest[i])
			s = rest[i+1:]
			continue
		}
		g := displaywidth.StringGraphemes(s)
		g.Next()
		v.put(g.Value(), g.Width())
		s = s[len(g.Value()):]
	}
	return len(b), nil
}

func (v *terminal) put(s string, width int) {
	for len(v.rows) <= v.row {
		v.rows = append(v.rows, nil)
	}
	switch s {
	case "\n":
		v.row, v.column = v.row+1, 0
		v.put("", 0)
		return
	case "\r":
		v.column = 0
		return
	}
	for len(v.rows[v.row]) < v.column+width {
		v.rows[v.row] = append(v.rows[v.row], " ")
	}
	for i := range width {
		v.rows[v.row][v.column+i] = ""
	}
	if width > 0 {
		v.rows[v.row][v.column] = s
	}
	v.column += width
}

func (v *terminal) control(args string, final byte) {
	n := 0
	for _, c := range args {
		if c >= '0' && c <= '9' {
			n = n*10 + int(c-'0')
		}
	}
	switch final {
	case 'A':
		v.row -= n
	case 'B':
		v.row += n
	case 'C':
		v.column += n
	case 'K':
		if v.put("", 0); v.column < len(v.rows[v.row]) {
			v.rows[v.row] = v.rows[v.row][:v.column]
		}
	case 'J':
		v.rows = v.rows[:v.row+1]
	case 'h', 'l', 'm':
	default:
		v.t.Errorf("it does not know %q", args+string(final))
	}
}

func (v *terminal) text() []string {
	var lines []string
	for _, r := range v.rows {
		lines = append(lines, strings.TrimRight(strings.Join(r, ""), " "))
	}
	return lines
}

// What a terminal shows after any keys is the view: its rows and the place of its cursor, whatever was shown before.
func TestScreen(t *testing.T) {
	bytes := []string{"a", "é", "漢", "👩‍🚀", "e\u0301", " ", "\t", "\r", "x:", "\x1b[A", "\x1b[B", "\x1b[C", "\x1b[D", "\x7f", "\x01", "\x05", "\x0b",
		"\x15", "\x17", "\x19", "\x12", "\x07", "\x1b\r", "\x1b[200~if x:\n\tprint('漢字漢字漢字漢字')\n\x1b[201~", "\x03"}
	rapid.Check(t, func(rt *rapid.T) {
		width, height := rapid.IntRange(8, 40).Draw(rt, "width"), rapid.IntRange(2, 12).Draw(rt, "height")
		v := &terminal{t: t}
		s := NewScreen(v, rapid.Bool().Draw(rt, "colour"))
		e := New(options("old", "two\nlines"))
		top := 0
		for _, keys := range rapid.SliceOfN(rapid.SampledFrom(bytes), 1, 40).Draw(rt, "keys") {
			_, r := typed(e, keys)
			view := e.View(width, height)
			if r == Accepted || r == Interrupted {
				if err := s.Leave(view, "^C"); err != nil {
					rt.Fatal(err)
				}
				if top += len(view.Rows); v.row != top || v.column != 0 {
					rt.Fatalf("left at %d, %d, want row %d", v.row, v.column, top)
				}
				e.Reset()
				continue
			}
			if err := s.Draw(view); err != nil {
				rt.Fatal(err)
			}
			var want []string
			for _, r := range view.Rows {
				want = append(want, strings.TrimRight(r.Prompt+r.Text, " "))
				if n := displaywidth.String(r.Prompt + r.Text); n >= width {
					rt.Fatalf("a row of %d columns on a terminal of %d", n, width)
				}
			}
			if got := v.text()[top:]; !slices.Equal(got, want) || v.row != top+view.Row || v.column != view.Column || len(view.Rows) > height {
				rt.Fatalf("%q with the cursor at %d, %d, want %q and %d, %d", got, v.row-top, v.column, want, view.Row, view.Column)
			}
		}
	})
}

// A terminal that has become narrower has set its rows anew: the next picture still covers the one before.
func TestResized(t *testing.T) {
	v := &terminal{t: t}
	s := NewScreen(v, false)
	e := New(options())
	typed(e, strings.Repeat("x", 30)+":\r"+strings.Repeat("y", 20))
	if err := s.Draw(e.View(40, 20)); err != nil {
		t.Fatal(err)
	}
	// What it does itself: 35 columns become four rows of 10, 24 plus the indentation three.
	v.rows, v.row, v.column = make([][]string, 7), 6, 8
	s.Resized(10)
	if err := s.Draw(e.View(10, 20)); err != nil {
		t.Fatal(err)
	}
	if got := v.text(); got[0] != ">>> xxxxx" || got[len(got)-1] != "yy" && !strings.HasSuffix(got[len(got)-1], "y") {
		t.Errorf("%q", got)
	}
}

// Without moving about: what is typed at the end is written on, other changes show the line again.
func TestPlainScreen(t *testing.T) {
	var b strings.Builder
	s := NewPlain(&b)
	e := New(options("old"))
	step := func(keys, want string) {
		t.Helper()
		b.Reset()
		_, r := typed(e, keys)
		var err error
		if v := e.View(80, 24); r == Edited {
			err = s.Draw(v)
		} else {
			err = s.Leave(v, "")
			e.Reset()
		}
		if b.String() != want || err != nil {
			t.Errorf("%q: %q, %v, want %q", keys, b.String(), err, want)
		}
	}
	step("", ">>> ")
	step("a漢", "a漢")
	step("\x7f", "\b \b\b \b")
	step("\x01b", "\n>>> ba")
	step("\r", "\n")
	step("", ">>> ")
	step("x:\r", "x:\n...     ")
	step("y", "y")
	step("\r\r", "\n... \n")
	step("\x1b[A", ">>> old")
	step("\x03", "\n")
	step("", ">>> ")
	step("a\x1b[200~b\nc\nd\x1b[201~", "ab\n... c\n... d")
	step("\x1b[A!", "\n... c!")
}

// Names that go on in several ways are shown below, in columns, and no longer than until the next key.
func TestHints(t *testing.T) {
	e := New(options())
	typed(e, "é.\t\t")
	v := e.View(40, 10)
	if len(v.Rows) != 2 || v.Rows[1] != (Row{Text: "append  apply", Hint: true}) {
		t.Errorf("%+v", v.Rows)
	}
	typed(e, "p")
	if v := e.View(40, 10); len(v.Rows) != 1 {
		t.Errorf("%+v", v.Rows)
	}
	var many []string
	for range 100 {
		many = append(many, "name")
	}
	if got := columns(many, 20, 2); !slices.Equal(got, []string{"name  name  name", "name  name  name", "… and 94 more"}) {
		t.Errorf("%q", got)
	}
}
