package pykernel_test

import (
	"strings"
	"testing"
	"unsafe"

	"soma/internal/pykernel"
)

// P-130: a command is cut on characters, only what is kept is looked at, and the rest is not held in memory.
func TestCut(t *testing.T) {
	for _, c := range []struct {
		in   string
		n    int
		want string
	}{{"", 3, ""}, {"abc", 3, "abc"}, {"abcd", 3, "abc"}, {"äöü", 3, "äöü"}, {"äöüß", 3, "äöü"}, {"äöü", 0, ""}, {"a\xffb", 2, "a\xff"}, {"𝕏𝕏", 1, "𝕏"}} {
		if got := pykernel.Cut(c.in, c.n); got != c.want {
			t.Errorf("%d of %q: %q", c.n, c.in, got)
		}
	}
	long := strings.Repeat("x", 64<<20)
	cut := pykernel.Cut(long, 4096)
	if len(cut) != 4096 || unsafe.StringData(cut) == unsafe.StringData(long) {
		t.Error("the whole command is held")
	}
	if n := testing.AllocsPerRun(10, func() { cut = pykernel.Cut(long, 4096) }); n > 1 {
		t.Errorf("%g allocations", n)
	}
}
