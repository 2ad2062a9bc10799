package plaintext

import (
	"strings"
	"testing"
)

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"plain\ttext\n":            "plain\ttext\n",
		"\x1b[31mred\x1b[0m":       "red",
		"\x1b]0;title\x07after":    "after",
		"\x1b]0;title\x1b\\after":  "after",
		"\x1b]open\nnext":          "\nnext",
		"\x1b(Bcharset":            "charset",
		"\x1b[3\nline":             "\nline",
		"bell\a null\x00 del\x7f.": "bell null del.",
		"one\r\ntwo\rthree":        "one\ntwo\nthree",
		"rtl \u202eabc\u2066":      "rtl abc",
		"é漢🎉":                      "é漢🎉",
	} {
		if got := Clean(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
		var c Cleaner
		var b strings.Builder
		for _, r := range in {
			b.WriteString(c.Clean(string(r)))
		}
		if got := b.String(); got != want {
			t.Errorf("%q by the character became %q, want %q", in, got, want)
		}
	}
}
