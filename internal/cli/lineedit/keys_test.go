package lineedit

import (
	"slices"
	"strings"
	"testing"
)

func TestKeys(t *testing.T) {
	for given, want := range map[string][]Key{
		"ab":                               {{Text, "ab"}},
		"a\x01b":                           {{Text, "a"}, {Kind: Home}, {Text, "b"}},
		"é漢👍":                              {{Text, "é漢👍"}},
		"x\xff\xfey":                       {{Text, "xy"}},
		"\x1b[A\x1bOB\x1b[1;5C\x1b[3~":     {{Kind: Up}, {Kind: Down}, {Kind: WordRight}, {Kind: Delete}},
		"\x1b[99;99~a\x1b[?62;c":           {{Text, "a"}},
		"\x1bb\x1b\x1b[D\x1bz":             {{Kind: WordLeft}, {Kind: Left}},
		"\x1b\x03\x1b\x04":                 {{Kind: Interrupt}, {Kind: Leave}},
		"\r\n\t\x1b\r\x7f":                 {{Kind: Enter}, {Kind: Enter}, {Kind: Tab}, {Kind: NewLine}, {Kind: Backspace}},
		"\x03\x04\x1a\x12\x13":             {{Kind: Interrupt}, {Kind: Leave}, {Kind: Suspend}, {Kind: Search}, {Kind: SearchBack}},
		"\x1b[200~a\rb\r\nc\x1b[201~\r":    {{Paste, "a\nb\nc"}, {Kind: Enter}},
		"\x1b[200~\x1b[201x\x03\x1b[201~":  {{Paste, "[201x"}},
		"\x1b[200~\x1b[201~a":              {{Text, "a"}},
		"\x1b[" + strings.Repeat("1", 99):  {{Text, strings.Repeat("1", 99-maxEscape)}},
		"\x00\x06\x02\x0e\x10\x0b\x15\x17": {{Kind: Right}, {Kind: Left}, {Kind: Down}, {Kind: Up}, {Kind: KillEnd}, {Kind: KillStart}, {Kind: KillWord}},
	} {
		var d Decoder
		if got := d.Feed([]byte(given)); !slices.Equal(got, want) {
			t.Errorf("%q: %+v, want %+v", given, got, want)
		}
		var bytewise []Key
		d = Decoder{}
		for i := range len(given) {
			for _, k := range d.Feed([]byte{given[i]}) {
				if last := len(bytewise) - 1; k.Kind == Text && last >= 0 && bytewise[last].Kind == Text {
					bytewise[last].Text += k.Text
				} else {
					bytewise = append(bytewise, k)
				}
			}
		}
		if !slices.Equal(bytewise, want) {
			t.Errorf("%q byte by byte: %+v, want %+v", given, bytewise, want)
		}
	}
}

// A paste is cut at its bound, and what comes after it is not a part of it.
func TestLongPaste(t *testing.T) {
	var d Decoder
	keys := d.Feed([]byte("\x1b[200~" + strings.Repeat("x", MaxPaste+10) + "\x1b[201~y"))
	if len(keys) != 2 || len(keys[0].Text) != MaxPaste || keys[1] != (Key{Text, "y"}) {
		t.Errorf("%d keys", len(keys))
	}
}

func FuzzKeys(f *testing.F) {
	f.Add([]byte("a\x1b[200~b\x1b[201~\x1b[A"), 3)
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		var whole, parts Decoder
		cut = min(max(cut, 0), len(b))
		one := whole.Feed(b)
		two := append(parts.Feed(b[:cut]), parts.Feed(b[cut:])...)
		if said(one) != said(two) {
			t.Errorf("%q cut at %d: %+v and %+v", b, cut, one, two)
		}
	})
}

func said(keys []Key) string {
	var b strings.Builder
	for _, k := range keys {
		b.WriteString(k.Text)
		if k.Kind != Text {
			b.WriteByte(byte(k.Kind))
		}
	}
	return b.String()
}
